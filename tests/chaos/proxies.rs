//! Redirects to other origins are not followed, others end, and an echoed token is never shown.

use listwatch_testserver::{Answer, Body, Server, TOKEN};

use crate::{INCOMPLETE, Whole, alone, client, elsewhere, list, serve};

#[test]
fn redirects_stay_within_the_origin_and_end() {
    alone(async {
        let whole = Whole::small();
        let elsewhere = serve(Answer::ok(Body::replay(whole.body.clone()))).await;
        for code in [300, 301, 302, 303, 304, 307, 308] {
            for (case, to) in [
                ("the same place", "/api/v1/pods".to_owned()),
                ("another place", format!("/elsewhere?token={TOKEN}")),
                ("another origin", format!("{}/api/v1/pods?token={TOKEN}", elsewhere.url())),
                ("a host like the token", format!("https://{}.example.com/", &TOKEN[..12])),
                ("no URL", "::".to_owned()),
                ("a user", format!("http://user:{TOKEN}@127.0.0.1:1/")),
            ] {
                let answer = Answer::ok(Body::replay(whole.body.clone())).status(code).header("location", &to);
                let server = serve(answer).await;
                for http2 in [false, true] {
                    list(case, client(&server.url(), http2), &whole).await.expect(case, &["the server redirects "]);
                }
                let loops = to.starts_with('/') && !matches!(code, 300 | 304);
                assert_eq!(server.requests().len(), if loops { 20 } else { 2 }, "{case}: {code}");
            }
        }
        assert!(elsewhere.requests().is_empty());
    });
}

#[test]
fn a_token_that_a_proxy_echoes_is_never_shown() {
    alone(async {
        let whole = Whole::small();
        let pages = ["Bearer {}", "<p>your token {} is old</p>", "{\"token\": \"{}\"}", "k8s\0{}", "{}", "\"{}\""];
        for (page, code) in pages.iter().flat_map(|page| [200, 400, 401, 403, 407, 502, 503].map(|code| (page, code))) {
            let text = |authorization: &str| page.replace("{}", authorization);
            let server = elsewhere(Server::start(move |request, n| {
                let authorization = request.headers["authorization"].to_str().unwrap();
                let token = authorization.strip_prefix("Bearer ").unwrap();
                let echo = if n % 2 == 0 { text(authorization) } else { text(token) };
                let answer = Answer::ok(Body::replay(echo)).status(code).content_type(&format!("text/{token}"));
                answer
                    .header("audit-id", token)
                    .header("warning", &format!("299 - \"{token}\""))
                    .header("www-authenticate", authorization)
            }))
            .await;
            for http2 in [false, true, false, true] {
                let case = format!("{page} under {code}");
                let ending = list(&case, client(&server.url(), http2), &whole).await;
                let not_a_list = ["API error: ", "unexpected encoding: ", "malformed: ", INCOMPLETE];
                ending.expect(&case, &not_a_list);
            }
        }
        // The token is truncated.
        let page = format!("<html>{TOKEN}</html>");
        for cut in 0..page.len() as u64 {
            for code in [200, 502] {
                let server = serve(Answer::ok(Body::replay(page.clone()).reset_at(cut)).status(code)).await;
                let case = format!("{page} reset at {cut} under {code}");
                list(&case, client(&server.url(), cut % 2 == 0), &whole).await;
            }
        }
    });
}
