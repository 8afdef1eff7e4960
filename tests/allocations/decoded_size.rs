//! The memory that decoding an item may allocate: bounded for any item, and sufficient for real objects.

use allocation_counter::measure;
use k8s_pb::api::core::v1::{ConfigMap, Container, EnvVar, Pod, PodSpec};
use k8s_pb::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceValidation,
    JsonSchemaProps,
};
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use listwatch::{Encoding, Event, ItemError, ItemRef, Limits, ListDecoder, ListReader};
use prost::Message;

use crate::support::{body_of, chain, len_field, tag};

const MIB: usize = 1 << 20;

fn pods(pods: &[Vec<u8>]) -> Vec<u8> {
    body_of("v1", "PodList", &pods.iter().map(|pod| len_field(2, pod)).collect::<Vec<_>>().concat())
}

/// A Pod that repeats an element this many times, in the message at this path of field numbers.
fn pod_of(path: &[u32], element: &[u8], times: usize) -> Vec<u8> {
    path.iter().rev().fold(element.repeat(times), |message, number| len_field(*number, &message))
}

/// Elements of repeated fields that take a few bytes, and far more memory once decoded.
fn attacks() -> Vec<(&'static str, &'static [u32], Vec<u8>)> {
    vec![
        ("volumes", &[2], len_field(1, b"")),
        ("containers", &[2], len_field(2, b"")),
        ("tolerations", &[2], len_field(22, b"")),
        ("topology spread constraints", &[2], len_field(33, b"")),
        ("projected sources", &[2, 1, 2, 26], len_field(1, b"")),
        ("env", &[2, 2], len_field(7, b"")),
        ("container statuses", &[3], len_field(8, b"")),
        ("conditions", &[3], len_field(2, b"")),
        ("managed fields", &[1], len_field(17, b"")),
        ("owner references", &[1], len_field(13, b"")),
        ("empty finalizers", &[1], len_field(14, b"")),
        ("short finalizers", &[1], len_field(14, b"~~")),
        ("supplemental groups", &[2, 14], [&tag(4, 0)[..], &[7]].concat()),
    ]
}

/// Decodes the items of a list one after the other; returns the first error, and the peak memory.
fn decode<M: Message + Default + 'static>(body: &[u8], limits: Limits) -> (Result<(), ItemError>, u64) {
    let mut result = Ok(());
    let allocated = measure(|| {
        let mut decoder = ListDecoder::with_limits(limits);
        let mut rest = body;
        while let Some(event) = decoder.decode(&mut rest).unwrap() {
            if let Event::Item(item) = event
                && let Err(error) = item.decode::<M>()
            {
                result = Err(error);
                break;
            }
        }
    });
    (result, allocated.bytes_max)
}

#[test]
fn an_item_takes_at_most_the_limit() {
    let max = 64 * MIB as u64;
    for (name, path, element) in attacks() {
        let decode =
            |times| decode::<Pod>(&pods(&[pod_of(path, &element, times)]), Limits::default().decoded_size(max));
        // Bisection finds how many elements the limit allows.
        let (mut allowed, mut refused) = (1, MIB + MIB / 4);
        while refused - allowed > 1000 + allowed / 16 {
            let half = usize::midpoint(allowed, refused);
            match decode(half) {
                (Ok(()), _) => allowed = half,
                (Err(ItemError::DecodedSize { estimate, max: limit }), allocated) => {
                    assert!(estimate > max && limit == max, "{name}: {estimate} is over {limit}");
                    // The error precedes the decoding.
                    assert!(allocated < 10_000, "{name}: {allocated} bytes for an error");
                    refused = half;
                }
                (Err(error), _) => panic!("{name}: {error}"),
            }
        }
        let (_, allocated) = decode(allowed);
        println!("{name}: {allowed} elements take {allocated} bytes");
        assert!(allocated <= max, "{name}: {allocated} bytes");
    }
}

#[test]
fn an_item_over_the_limit_is_an_error_or_skipped() {
    let small = pod_of(&[2], &len_field(1, b""), 8000);
    let body = pods(&[small.clone(), pod_of(&[2], &len_field(1, b""), 700_000), small]);
    let error = ListReader::new::<Pod>(&body[..]).find_map(Result::err).unwrap();
    let text = chain(&error);
    let before = "cannot read item 1, at byte 16029, 1 item delivered: decoding may allocate ";
    assert!(text.starts_with(before) && text.ends_with(" bytes, over the limit of 256 MiB"), "{text}");
    let mut reader = ListReader::new::<Pod>(&body[..]).skip_item_errors(true);
    assert_eq!((reader.by_ref().count(), reader.end().unwrap().skipped), (2, 1));
    let (result, _) =
        decode::<Pod>(&pods(&[pod_of(&[2], &len_field(1, b""), 8500)]), Limits::default().decoded_size(1 << 20));
    assert!(matches!(result, Err(ItemError::DecodedSize { .. })), "{result:?}");
}

/// Objects of realistic shapes, as large as etcd accepts.
#[test]
fn real_objects_of_one_and_a_half_megabytes_are_decoded() {
    let text = |index: usize| Some(format!("value-{index}"));
    let url = |at: usize| Some(format!("https://service-{at}.team.svc.cluster.local:8443"));
    let env =
        |count: usize| (0..count).map(|at| EnvVar { name: text(at), value: url(at), ..EnvVar::default() }).collect();
    let containers = |count: usize| -> Vec<Container> {
        let container = |at| Container { name: text(at), image: text(at), env: env(700), ..Container::default() };
        (0..count).map(container).collect()
    };
    let pod = Pod { spec: Some(PodSpec { containers: containers(35), ..PodSpec::default() }), ..Pod::default() };
    let endpoint = |at: usize| Endpoint {
        addresses: vec![format!("10.0.{}.{}", at / 256, at % 256)],
        node_name: text(at),
        zone: Some("zone-a".to_owned()),
        ..Endpoint::default()
    };
    let slice = EndpointSlice { endpoints: (0..40_000).map(endpoint).collect(), ..EndpointSlice::default() };
    let data = |entries: usize, len: usize| ConfigMap {
        data: (0..entries).map(|at| (format!("key-{at}"), "x".repeat(len))).collect(),
        ..ConfigMap::default()
    };
    let property = |at: usize| JsonSchemaProps {
        r#type: Some("string".to_owned()),
        description: Some(format!("What the field number {at} says, in a sentence or two that explain it.")),
        ..JsonSchemaProps::default()
    };
    let properties = (0..14_500).map(|at| (format!("property{at}"), property(at))).collect();
    let schema = JsonSchemaProps { properties, ..JsonSchemaProps::default() };
    let version = CustomResourceDefinitionVersion {
        schema: Some(CustomResourceValidation { open_apiv3_schema: Some(schema) }),
        ..CustomResourceDefinitionVersion::default()
    };
    let definition = CustomResourceDefinition {
        metadata: Some(ObjectMeta { name: text(1), ..ObjectMeta::default() }),
        spec: Some(CustomResourceDefinitionSpec { versions: vec![version], ..CustomResourceDefinitionSpec::default() }),
        ..CustomResourceDefinition::default()
    };
    check(&pod);
    check(&slice);
    check(&data(1, 1_400_000));
    check(&data(14_000, 90));
    check(&data(80_000, 5));
    check(&definition);
}

fn check<M: Message + Default + PartialEq + 'static>(object: &M) {
    let bytes = object.encode_to_vec();
    let name = std::any::type_name::<M>();
    assert!((1_300_000..1_700_000).contains(&bytes.len()), "{name}: {} bytes", bytes.len());
    let kind = name.rsplit("::").next().unwrap();
    let api_version = match kind {
        "EndpointSlice" => "discovery.k8s.io/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        _ => "v1",
    };
    let body = body_of(api_version, &format!("{kind}List"), &len_field(2, &bytes));
    let (result, allocated) = decode::<M>(&body, Limits::default());
    println!("{name}: {} bytes take {allocated}", bytes.len());
    result.unwrap_or_else(|error| panic!("{name}: {error}"));
    // The estimate is an upper bound. Besides, the decoder keeps the type meta.
    let (result, _) = decode::<M>(&body, Limits::default().decoded_size(allocated - 1000));
    assert!(matches!(result, Err(ItemError::DecodedSize { .. })), "{name}: {result:?}");
}

#[test]
fn json_items_are_bounded() {
    let decode = |item: String| {
        let body = format!(r#"{{"kind":"WidgetList","apiVersion":"v1","items":[{item}]}}"#);
        let mut decoder = ListDecoder::new().accept_json();
        let mut rest = body.as_bytes();
        loop {
            match decoder.decode(&mut rest).unwrap() {
                Some(Event::Item(item)) => return item.decode_json::<serde_json::Value>().map(drop),
                Some(_) => {}
                None => panic!("no item"),
            }
        }
    };
    for (element, times) in [
        ("{}", 350_000),
        ("[]", 1_000_000),
        ("0", 2_500_000),
        (r#"{"a":"{"}"#, 250_000),
        (r#"{"a":{},"b":{}}"#, 160_000),
    ] {
        let item = format!(r#"{{"parts":[{}]}}"#, vec![element; times].join(","));
        let error = decode(item).unwrap_err();
        assert!(matches!(error, ItemError::DecodedSize { .. }), "{element}: {error}");
    }
    // A dashboard in a string, and a list of many objects.
    let text = r#"{\"panels\":[{\"title\":\"CPU, memory\"}]}"#.repeat(30_000);
    decode(format!(r#"{{"data":"{text}"}}"#)).unwrap();
    let parts: Vec<_> =
        (0..20_000).map(|at| format!(r#"{{"name":"part-{at}","size":{at},"labels":{{"app":"a"}}}}"#)).collect();
    decode(format!(r#"{{"parts":[{}]}}"#, parts.join(","))).unwrap();
}

/// Objects as dense as an API server can have stored them, within the default limit. The estimate is an upper bound of
/// what an untyped value takes.
#[test]
fn dense_objects_of_json_are_decoded() {
    for (element, times) in [
        ("[1.5,2.5]", 62_000),
        ("[1.5,2.5]", 150_000),
        (r#"{"x":1.5,"y":2.5}"#, 83_000),
        (r#"{"name":"a","value":"b"}"#, 60_000),
        (r#""a""#, 370_000),
        ("1", 750_000),
        ("[1,[2,[3]]]", 120_000),
    ] {
        let object = format!(r#"{{"parts":[{}]}}"#, vec![element; times].join(","));
        assert!((500_000..1_600_000).contains(&object.len()), "{} bytes", object.len());
        let item = ItemRef::new(Encoding::Json, object.as_bytes());
        let allocated = measure(|| drop(item.decode_json::<serde_json::Value>().unwrap())).bytes_max;
        println!("{element}: {} bytes take {allocated}", object.len());
        let error = item.with_decoded_size(allocated - 1).decode_json::<serde_json::Value>().unwrap_err();
        assert!(matches!(error, ItemError::DecodedSize { .. }), "{element}: {error}");
    }
}

/// A workflow of thousands of steps. A third of it are managed fields: empty members of nested objects.
#[test]
fn a_custom_resource_with_large_managed_fields_is_decoded() {
    let names = ["boundaryID", "children", "displayName", "finishedAt", "id", "message", "name", "phase", "startedAt"];
    let join = |entry: &dyn Fn(&str) -> String| names.map(entry).join(",");
    let steps = |entry: &dyn Fn(usize) -> String| (0..3000).map(entry).collect::<Vec<_>>().join(",");
    let nodes =
        steps(&|at| format!(r#""step-{at}":{{{}}}"#, join(&|name| format!(r#""{name}":"value of {name} {at}""#))));
    let managed = steps(&|at| format!(r#""f:step-{at}":{{".":{{}},{}}}"#, join(&|name| format!(r#""f:{name}":{{}}"#))));
    let only_managed = vec![format!(r#"{{"manager":"m","fieldsV1":{{"f:nodes":{{{managed}}}}}}}"#); 3].join(",");
    for (nodes, managed) in
        [(&*nodes, format!(r#"{{"manager":"m","fieldsV1":{{"f:nodes":{{{managed}}}}}}}"#)), ("", only_managed)]
    {
        let object =
            format!(r#"{{"metadata":{{"name":"n","managedFields":[{managed}]}},"status":{{"nodes":{{{nodes}}}}}}}"#);
        assert!((1_300_000..1_900_000).contains(&object.len()), "{} bytes", object.len());
        let item = ItemRef::new(Encoding::Json, object.as_bytes());
        let allocated = measure(|| drop(item.decode_json::<serde_json::Value>().unwrap()));
        println!("{} bytes take {}", object.len(), allocated.bytes_max);
        assert!(allocated.bytes_max < 64 * MIB as u64, "{}", allocated.bytes_max);
    }
}

/// Metadata is read without a limit, so its elements are read one at a time.
#[test]
fn elements_of_the_metadata_take_no_memory() {
    let protobuf = [13, 14, 17].map(|number| len_field(number, b"").repeat(50_000)).concat();
    let json =
        ["ownerReferences", "managedFields"].map(|name| format!(r#""{name}":[{}]"#, vec!["{}"; 50_000].join(",")));
    let json = format!(r#"{{"metadata":{{{},"finalizers":[{}]}}}}"#, json.join(","), vec![r#""""#; 50_000].join(","));
    for (encoding, object) in [(Encoding::Protobuf, len_field(1, &protobuf)), (Encoding::Json, json.into_bytes())] {
        let allocated = measure(|| {
            let meta = ItemRef::new(encoding, &object).meta().unwrap();
            assert_eq!(meta.owner_references().unwrap().count(), 50_000);
            assert_eq!(meta.finalizers().unwrap().count(), 50_000);
            assert_eq!(meta.managed_fields().unwrap().count(), 50_000);
        });
        assert_eq!(allocated.count_total, 0, "{encoding:?}");
    }
}

/// A cause takes only two bytes of a Status.
#[test]
fn a_status_keeps_its_first_thousand_causes() {
    let details = [len_field(1, b"name"), len_field(4, b"").repeat(500_000), len_field(3, b"Pod")].concat();
    let status = [len_field(4, b"Invalid"), len_field(5, &details), vec![0x30, 0xa6, 0x03]].concat();
    let body = body_of("v1", "Status", &status);
    let allocated = measure(|| {
        let mut decoder = ListDecoder::new();
        let error = decoder.decode(&mut &body[..]).unwrap_err();
        let status = error.status().unwrap();
        let details = status.details.as_ref().unwrap();
        assert_eq!((status.code, &*status.reason, &*details.name, &*details.kind), (422, "Invalid", "name", "Pod"));
        assert_eq!(details.causes.len(), 1000);
        // Later calls return the same error, not a copy.
        for _ in 0..1000 {
            decoder.finish().unwrap_err();
        }
    });
    assert!(allocated.bytes_max < 4 * MIB as u64 && allocated.bytes_total < 8 * MIB as u64, "{allocated:?}");
}
