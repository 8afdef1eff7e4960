//! Hand-made objects in protobuf, with fields that no generated type has.

/// A protobuf field of up to 127 bytes.
pub fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, value.len().try_into().unwrap()], value].concat()
}

/// A ConfigMap in namespace `web`, in protobuf, with field 6, which a later release may have.
pub fn later_config_map(name: &str, version: u32) -> Vec<u8> {
    let version = version.to_string();
    let metadata =
        [(1, name), (3, "web"), (5, name), (6, &version)].map(|(number, text)| field(number, text.as_bytes()));
    [field(1, &metadata.concat()), vec![0x30, 1]].concat()
}

/// A body in protobuf: an object, or a list of ConfigMaps.
pub fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, raw), vec![0x1a, 0, 0x22, 0]].concat()
}
