//! Reads all fields of a Pod, and adds the lengths and the numbers.

#[allow(dead_code, clippy::wildcard_imports, unused_variables, reason = "it reads Pods")]
#[path = "../../../../crates/views/tests/views/generated.rs"]
mod generated;

/// Reads all fields of a Pod.
pub fn walk(pod: listwatch_views::core_v1::PodView<'_>) -> u64 {
    let node::Node(sum) = node::Walk::walk(pod);
    sum
}

/// The types that `generated` uses.
mod node {
    use listwatch_views::{Element, IntOrString, List, Map, Quantity, RawJson, Time};

    pub struct Node(pub u64);

    pub trait Walk {
        fn walk(self) -> Node;
    }

    pub fn message<const N: usize>(fields: [(&'static str, Node); N]) -> Node {
        sum(fields.into_iter().map(|(_, node)| node))
    }

    pub fn or<const N: usize>(fields: [(&'static str, Node); N]) -> Node {
        message(fields)
    }

    fn sum(nodes: impl Iterator<Item = Node>) -> Node {
        Node(nodes.fold(0, |sum, Node(value)| sum.wrapping_add(value)))
    }

    impl<T: Walk> Walk for Option<T> {
        fn walk(self) -> Node {
            self.map_or(Node(0), Walk::walk)
        }
    }

    impl<'a, T: Walk + Element<'a>> Walk for List<'a, T> {
        fn walk(self) -> Node {
            sum(self.iter().map(Walk::walk))
        }
    }

    impl<'a, T: Walk + Element<'a>> Walk for Map<'a, T> {
        fn walk(self) -> Node {
            sum(self.iter().flat_map(|(key, value)| [key.walk(), value.walk()]))
        }
    }

    macro_rules! walk {
        ($($of:ty: $value:ident => $node:expr;)*) => { $(
            impl Walk for $of {
                fn walk(self) -> Node {
                    let $value = self;
                    Node($node)
                }
            }
        )* };
    }

    walk! {
        &str: text => text.len() as u64;
        &[u8]: bytes => bytes.len() as u64;
        bool: value => value.into();
        i32: value => u64::from(value.cast_unsigned());
        i64: value => value.cast_unsigned();
        f64: value => value.to_bits();
        Time: time => time.seconds().cast_unsigned();
        jiff::SignedDuration: duration => duration.as_secs().cast_unsigned();
        Quantity<'_>: quantity => quantity.as_str().len() as u64;
        IntOrString<'_>: value => value.text().map_or(0, str::len) as u64;
        RawJson<'_>: json => json.bytes().len() as u64;
    }
}
