//! `--limit`: what is known of the objects that it leaves out. Nobody may take a part for the whole.

use std::pin::pin;

use futures::{Stream, StreamExt};
use indicatif::HumanCount;
use listwatch::ListMeta;

use crate::failure::Failure;
use crate::notices;
use crate::output::ListProgress;
use crate::signals::interrupted;

/// The objects after those that are printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rest {
    /// There are none.
    Nothing,
    /// There are this many, at least one.
    Objects(u64),
    /// There are some.
    Some,
    /// There may be some: the server has not compared all other objects with the selector.
    Perhaps,
}

impl Rest {
    /// Returns the rest after a page, `surplus` of whose objects are not printed.
    ///
    /// A token after selected objects only says that the collection continues, and a count that came with it would be
    /// of all objects.
    pub fn after(surplus: u64, token: &str, remaining: Option<i64>, selects_all: bool) -> Self {
        let remaining = remaining.and_then(|count| u64::try_from(count).ok());
        match remaining.filter(|count| *count > 0 && selects_all) {
            _ if token.is_empty() && surplus == 0 => Self::Nothing,
            _ if token.is_empty() => Self::Objects(surplus),
            Some(remaining) => Self::Objects(remaining.saturating_add(surplus)),
            None if surplus > 0 || selects_all => Self::Some,
            None => Self::Perhaps,
        }
    }

    /// Says on stderr that `shown` objects are not all. `seen` are those before the rest, which is more than `shown` if
    /// the format prints nothing for some.
    pub fn report(self, shown: u64, seen: u64) {
        let shown = HumanCount(shown);
        match self {
            Self::Nothing => {}
            Self::Objects(rest) => {
                notices::print_line(format_args!("{shown} of {} shown", HumanCount(seen.saturating_add(rest))));
            }
            Self::Some => notices::print_line(format_args!("{shown} shown, and there are more")),
            Self::Perhaps => notices::print_line(format_args!("{shown} shown, and there may be more")),
        }
    }

    /// Returns the metadata of a list that lacks the rest. The token counts only if it does not skip a surplus.
    pub fn list_meta(self, surplus: u64, token: &str) -> ListMeta {
        let mut meta = ListMeta::default();
        if surplus == 0 {
            token.clone_into(&mut meta.continue_token);
        }
        meta.remaining_item_count = match self {
            Self::Objects(rest) => Some(i64::try_from(rest).unwrap_or(i64::MAX)),
            // Without a token, the number that is known to be left out is what shows that the list is a part.
            Self::Some if surplus > 0 => Some(i64::try_from(surplus).unwrap_or(i64::MAX)),
            Self::Nothing | Self::Some | Self::Perhaps => None,
        };
        meta
    }
}

/// Returns the number of objects that a server sent beyond the limit, by reading at most `most` of them.
pub async fn count_surplus<S, T>(
    items: &mut S,
    most: u64,
    progress_of: impl Fn(&S) -> ListProgress,
) -> Result<u64, Failure>
where
    S: Stream<Item = Result<T, Failure>> + Unpin,
{
    let mut interrupted = pin!(interrupted());
    let mut surplus = 0;
    while surplus < most {
        let next = tokio::select! {
            biased;
            () = &mut interrupted => return Err(Failure::Interrupted(progress_of(items).text())),
            next = items.next() => next,
        };
        let Some(item) = next else { break };
        item?;
        surplus += 1;
    }
    Ok(surplus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_only_what_the_server_said() {
        for (surplus, token, remaining, selects_all, rest, continued) in [
            (0, "", None, true, Rest::Nothing, ("", None)),
            (0, "t", Some(7), true, Rest::Objects(7), ("t", Some(7))),
            (0, "t", None, true, Rest::Some, ("t", None)),
            (0, "t", Some(0), true, Rest::Some, ("t", None)),
            (0, "t", Some(-1), true, Rest::Some, ("t", None)),
            (0, "t", None, false, Rest::Perhaps, ("t", None)),
            (0, "t", Some(7), false, Rest::Perhaps, ("t", None)),
            (0, "", None, false, Rest::Nothing, ("", None)),
            (3, "", None, false, Rest::Objects(3), ("", Some(3))),
            (3, "t", Some(7), true, Rest::Objects(10), ("", Some(10))),
            (3, "t", Some(i64::MAX), true, Rest::Objects(i64::MAX.cast_unsigned() + 3), ("", Some(i64::MAX))),
            (3, "t", None, false, Rest::Some, ("", Some(3))),
        ] {
            let found = Rest::after(surplus, token, remaining, selects_all);
            let meta = found.list_meta(surplus, token);
            assert_eq!(found, rest, "{surplus} {token} {remaining:?}");
            assert_eq!(
                (&*meta.continue_token, meta.remaining_item_count),
                continued,
                "{surplus} {token} {remaining:?}"
            );
        }
    }
}
