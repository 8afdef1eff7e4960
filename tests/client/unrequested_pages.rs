//! Pages as servers and proxies send them: split without a request, empty, with repeated tokens, of several versions.

use listwatch::client::{ErrorKind, List, ListParams, Resource, Selection};
use listwatch::{ItemError, ItemRef};

use crate::support::transport::{Answer, Asked, Scripted};

fn widgets() -> Resource {
    Resource::new("example.com", "v1", "widgets", "Widget")
}

/// A page of these widgets, with this version and these further members of its metadata.
fn page(version: u32, more: &str, items: &[u32]) -> Answer {
    let items: Vec<_> = items.iter().map(|item| format!(r#"{{"metadata":{{"name":"w-{item}"}}}}"#)).collect();
    let meta = format!(r#"{{"resourceVersion":"{version}"{more}}}"#);
    let head = r#""kind":"WidgetList","apiVersion":"example.com/v1""#;
    Answer::ok(format!(r#"{{{head},"metadata":{meta},"items":[{}]}}"#, items.join(",")))
}

fn token(token: &str) -> String {
    format!(r#","continue":"{token}""#)
}

fn names(server: &Scripted, params: &ListParams) -> List<impl FnMut(ItemRef<'_>) -> Result<String, ItemError> + use<>> {
    server.client().list_with(&widgets(), params, |item| Ok(item.meta()?.name().into_owned()))
}

/// A server whose pages follow each other by their number, which is the continue token.
fn paging(pages: &'static [&'static [u32]], more: &'static str) -> Scripted {
    Scripted::by(move |asked: &Asked, _| {
        let number: usize = asked.parameter("continue").map_or(0, |token| token.parse().unwrap());
        let next = if number + 1 < pages.len() {
            format!("{}{more}", token(&(number + 1).to_string()))
        } else {
            String::new()
        };
        page(50, &next, pages[number])
    })
}

/// A case, its page size, the items of each page, and further members of the metadata.
type Paging = (&'static str, Option<u32>, &'static [&'static [u32]], &'static str);

const PAGINGS: [Paging; 7] = [
    ("not requested", None, &[&[1, 2], &[3, 4], &[5]], ""),
    ("requested", Some(2), &[&[1, 2], &[3, 4], &[5]], ""),
    ("empty pages", Some(2), &[&[], &[1, 2], &[], &[], &[3, 4, 5], &[]], ""),
    ("empty pages before all items", None, &[&[], &[], &[1, 2, 3, 4, 5]], ""),
    ("a server that ignores the page size", Some(2), &[&[1, 2, 3, 4, 5]], ""),
    ("larger pages than requested", Some(2), &[&[1, 2, 3], &[4, 5]], ""),
    ("a negative number of remaining items", Some(2), &[&[1, 2], &[3, 4], &[5]], r#","remainingItemCount":-3"#),
];

#[tokio::test]
async fn follows_each_token_whatever_page_size_was_requested() {
    for (case, page_size, pages, more) in PAGINGS {
        let server = paging(pages, more);
        let params = page_size.into_iter().fold(ListParams::default(), ListParams::page_size);
        let (items, summary) = names(&server, &params).into_vec().await.unwrap();
        assert_eq!(items, ["w-1", "w-2", "w-3", "w-4", "w-5"], "{case}");
        assert_eq!((summary.items, summary.pages, summary.consistent), (5, pages.len() as u64, true), "{case}");
        assert_eq!(server.requests(), pages.len(), "{case}");
    }
}

#[tokio::test]
async fn a_single_page_is_one_request() {
    let server = paging(&[&[1], &[2]], "");
    let (items, summary) = names(&server, &ListParams::default()).single_page(None).into_vec().await.unwrap();
    assert_eq!((items.len(), &*summary.list_meta.continue_token, server.requests()), (1, "1", 1));
    let version = server.client().current_version(&widgets(), &Selection::all(), None).await.unwrap();
    assert_eq!((&*version, server.requests()), ("50", 2));
}

#[tokio::test]
async fn ends_when_a_continue_token_repeats() {
    for (case, tokens, pages) in [
        ("the same", &["a"][..], 2),
        ("the same, later", &["x", "y", "z", "a", "a"], 5),
        ("two in turn", &["a", "b"], 3),
        ("three in turn", &["a", "b", "c"], 4),
    ] {
        let server = Scripted::by(move |_, request| page(50, &token(tokens[request % tokens.len()]), &[1]));
        let mut list = names(&server, &ListParams::default());
        let (mut delivered, mut end) = (0, None);
        while let Some(item) = list.next().await {
            match item {
                Ok(_) => delivered += 1,
                Err(error) => end = Some(error),
            }
        }
        let error = end.unwrap();
        assert!(matches!(error.kind(), ErrorKind::RepeatedToken), "{case}: {error}");
        assert_eq!(
            (error.items(), delivered, server.requests()),
            (pages, pages, usize::try_from(pages).unwrap()),
            "{case}"
        );
        assert!(list.summary().is_none());
        let expected = "the server repeated a continue token, so its pages would never end, ";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

/// A continue token names the version of the first page.
#[tokio::test]
async fn pages_of_several_versions_are_an_error_unless_allowed() {
    let pages = || [page(50, &token("a"), &[1]), page(51, &token("b"), &[2]), page(52, "", &[3])];
    for list in [
        names(&Scripted::in_turn(pages()), &ListParams::default()),
        names(&Scripted::in_turn(pages()), &ListParams::default()).on_restart(|_| panic!("no restart")),
    ] {
        let error = list.into_vec().await.unwrap_err();
        let expected = r#"the pages have different resource versions, "50" and "51", so the list is not a snapshot, 2 items delivered"#;
        assert_eq!((&*error.to_string(), error.is_expired()), (expected, false));
    }
    // A watch from the first version gets all changes after it.
    let list = names(&Scripted::in_turn(pages()), &ListParams::default()).allow_inconsistent();
    let (items, summary) = list.into_vec().await.unwrap();
    assert_eq!((items.len(), &*summary.list_meta.resource_version, summary.consistent), (3, "50", false));
}
