//! What a view accepts, k8s-pb decodes, and reads the same; and so it does after the object was rewritten into its
//! canonical form.
//!
//! The programs that include this file also include the modules of `crates/views/tests/views`.

use listwatch::{Encoding, ItemError, ItemRef};

use super::generated::{canonical, walk};
use super::pb::{self, KINDS};

/// Takes a byte that selects the kind, and an object.
pub fn run(data: &[u8]) {
    let Some((place, object)) = data.split_first() else { return };
    let (api_version, kind) = KINDS[usize::from(*place) % KINDS.len()];
    let item = ItemRef::new(Encoding::Protobuf, object);
    let view = |item: ItemRef<'_>| walk(api_version, kind, item).expect("the kind has a view");
    match canonical(api_version, kind, item).expect("the kind has a view") {
        Ok(bytes) => {
            let decode = |object: &[u8]| pb::decode(api_version, kind, object).expect("k8s-pb has the kind");
            let decoded = decode(&bytes).expect("k8s-pb accepts the canonical form");
            match decode(object) {
                Ok(again) => assert_eq!(format!("{decoded:?}"), format!("{again:?}")),
                // The canonical form has U+FFFD in its place.
                Err(error) => assert!(error.to_string().contains("UTF-8"), "only k8s-pb refuses: {error}"),
            }
            match view(item) {
                Ok(node) => {
                    assert_eq!(bytes, object);
                    pb::compare(&node, &decoded, kind);
                }
                Err(ItemError::NotCanonical) => {
                    let node = view(ItemRef::new(Encoding::Protobuf, &bytes)).expect("the canonical form is canonical");
                    pb::compare(&node, &decoded, kind);
                }
                Err(error) => panic!("the check of the same object differs: {error}"),
            }
        }
        // k8s-pb accepts some malformed objects: it does not know all fields, and skips groups.
        Err(ItemError::View { offset, .. }) => {
            assert!(offset <= object.len() as u64);
            assert!(matches!(view(item), Err(ItemError::View { .. })));
        }
        Err(ItemError::DecodedSize { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
