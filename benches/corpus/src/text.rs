//! Random names, values and texts.

use fastrand::Rng;

/// The alphabet of generated names, which has no vowels.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

const ALPHANUMERIC: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "account", "action", "address", "agent", "alert", "analytics", "archive", "asset", "audit", "auth", "backend", "balance", "batch",
    "billing", "bridge", "broker", "bucket", "cache", "calendar", "campaign", "cart", "catalog", "channel", "charge", "checkout",
    "claim", "cluster", "collector", "comment", "compliance", "config", "contact", "content", "core", "coupon", "credit", "crawler",
    "currency", "customer", "dashboard", "data", "delivery", "device", "dispatch", "document", "edge", "email", "engine", "entity",
    "event", "export", "feature", "feed", "fetch", "file", "filter", "fraud", "gateway", "geo", "graph", "group", "health", "history",
    "identity", "image", "import", "index", "ingest", "insight", "inventory", "invoice", "item", "journal", "key", "label", "ledger",
    "limit", "link", "listing", "loader", "location", "log", "loyalty", "mail", "market", "match", "media", "member", "menu", "merchant",
    "message", "meter", "metric", "mobile", "model", "monitor", "notify", "offer", "onboarding", "order", "partner", "payment",
    "permission", "photo", "pipeline", "planner", "policy", "portal", "price", "print", "process", "product", "profile", "promo",
    "proxy", "push", "query", "queue", "quote", "rate", "reader", "receipt", "recommend", "refund", "region", "registry", "relay",
    "report", "request", "resolver", "retry", "review", "reward", "risk", "route", "rule", "sample", "schedule", "schema", "search",
    "secret", "segment", "session", "settings", "shard", "shipping", "signal", "signup", "site", "stock", "storage", "store", "stream",
    "subscription", "summary", "support", "sync", "tag", "task", "tax", "team", "tenant", "ticket", "token", "topic", "tracker",
    "transfer", "translate", "trigger", "update", "upload", "usage", "user", "vault", "vendor", "video", "view", "voucher", "wallet",
    "warehouse", "webhook", "widget", "worker", "writer", "zone",
];

const ENVIRONMENTS: &[&str] = &["prod", "prod-eu", "prod-us", "staging", "canary", "dev", "perf"];
const SETTINGS: &[&str] = &[
    "URL",
    "HOST",
    "PORT",
    "TIMEOUT",
    "TIMEOUT_MS",
    "ENABLED",
    "LEVEL",
    "MAX_SIZE",
    "POOL_SIZE",
    "RETRIES",
    "TOKEN_PATH",
    "BUCKET",
    "TOPIC",
    "GROUP_ID",
    "REGION",
    "ENDPOINT",
    "INTERVAL",
    "THRESHOLD",
    "MODE",
    "VERSION",
    "CLIENT_ID",
    "SCHEMA",
    "OPTS",
    "PREFIX",
];

/// Returns a random element, of a slice that is not empty.
pub fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// Returns a number in the range, which includes both ends.
pub fn between(rng: &mut Rng, (from, to): (u32, u32)) -> u32 {
    rng.u32(from..=to)
}

/// Returns a number in the range; smaller numbers are more likely.
pub fn skewed(rng: &mut Rng, (from, to): (u32, u32)) -> u32 {
    let most = rng.u32(from..=to);
    rng.u32(from..=most)
}

fn text(rng: &mut Rng, length: usize, of: &[u8]) -> String {
    (0..length).map(|_| char::from(pick(rng, of))).collect()
}

/// Returns this many hexadecimal digits.
pub fn hex(rng: &mut Rng, length: usize) -> String {
    text(rng, length, b"0123456789abcdef")
}

/// Returns a suffix of a generated name, of this length.
pub fn suffix(rng: &mut Rng, length: usize) -> String {
    text(rng, length, SAFE)
}

/// Returns a token of this length.
pub fn secret(rng: &mut Rng, length: usize) -> String {
    text(rng, length, ALPHANUMERIC)
}

/// Returns a UUID of version 4.
pub fn uid(rng: &mut Rng) -> String {
    let mut parts = [8, 4, 4, 4, 12].map(|length| hex(rng, length));
    parts[2].replace_range(..1, "4");
    parts[3].replace_range(..1, pick(rng, &["8", "9", "a", "b"]));
    parts.join("-")
}

/// Returns a word of a short list.
pub fn word(rng: &mut Rng) -> &'static str {
    pick(rng, WORDS)
}

/// Returns two or three words, joined by `-`.
pub fn name(rng: &mut Rng) -> String {
    let count = 2 + usize::from(rng.u8(..4) == 0);
    (0..count).map(|_| word(rng)).collect::<Vec<_>>().join("-")
}

/// Returns the name of an environment.
pub fn environment(rng: &mut Rng) -> &'static str {
    pick(rng, ENVIRONMENTS)
}

/// Returns the tag of an image: a version, the number of a build or a commit.
pub fn version(rng: &mut Rng) -> String {
    match rng.u8(..4) {
        0 => hex(rng, 40),
        1 => format!("{}-{}", rng.u32(1000..90000), hex(rng, 7)),
        _ => format!("v{}.{}.{}", rng.u8(..4), rng.u8(..60), rng.u8(..30)),
    }
}

/// Returns the name of an environment variable.
pub fn variable(rng: &mut Rng) -> String {
    format!("{}_{}_{}", word(rng), word(rng), pick(rng, SETTINGS)).to_uppercase()
}

/// Returns the value of a setting, mostly a short one.
pub fn value(rng: &mut Rng) -> String {
    match rng.u8(..16) {
        0..3 => rng.bool().to_string(),
        3..6 => pick(rng, &[1, 2, 5, 10, 30, 60, 100, 200, 500, 1000, 3000, 5000, 8080, 9090, 65536]).to_string(),
        6 => rng.u32(..).to_string(),
        7..10 => format!(
            "http://{}.{}.svc.cluster.local:{}/{}",
            name(rng),
            word(rng),
            pick(rng, &[80, 8080, 9000]),
            word(rng)
        ),
        10 => {
            format!("jdbc:postgresql://{}.{}.internal:5432/{}?sslmode=verify-full", name(rng), hex(rng, 12), word(rng))
        }
        11 => secret(rng, 32),
        12 => format!("arn:aws:iam::{}:role/{}", rng.u64(100_000_000_000..1_000_000_000_000), name(rng)),
        13 => (0..rng.u8(2..8)).map(|_| word(rng)).collect::<Vec<_>>().join(","),
        14 => format!("/etc/{}/{}.yaml", word(rng), word(rng)),
        _ => name(rng),
    }
}

/// Returns a JSON object of about this many bytes.
pub fn json(rng: &mut Rng, bytes: usize) -> String {
    let mut out = String::new();
    json_object(rng, bytes, 0, &mut out);
    out
}

fn json_object(rng: &mut Rng, bytes: usize, depth: u8, out: &mut String) {
    let end = out.len() + bytes;
    out.push('{');
    while out.len() < end {
        if !out.ends_with('{') {
            out.push(',');
        }
        let left = end.saturating_sub(out.len());
        *out += &format!("\"{}{}\":", word(rng), pick(rng, &["", "", "Name", "Id", "Config", "s", "Ref"]));
        match rng.u8(..8) {
            0..3 if left > 80 && depth < 5 => {
                let inner = rng.usize(40..left.min(600));
                json_object(rng, inner, depth + 1, out);
            }
            3 => *out += &rng.u32(..100_000).to_string(),
            4 => *out += &rng.bool().to_string(),
            5 => *out += &format!("[\"{}\",\"{}\"]", name(rng), value(rng)),
            _ => *out += &format!("\"{}\"", value(rng)),
        }
    }
    out.push('}');
}

/// Returns a text template of about this many bytes, in lines.
pub fn template(rng: &mut Rng, bytes: usize) -> String {
    let path = format!("secret/data/{}/{}", word(rng), name(rng));
    let mut out = format!("{{{{- with secret \"{path}\" -}}}}\n");
    while out.len() < bytes {
        let variable = variable(rng);
        out += &match rng.u8(..3) {
            0 => format!("export {variable}={}\n", value(rng)),
            _ => format!("export {variable}=\"{{{{ .Data.data.{}_{} }}}}\"\n", word(rng), word(rng)),
        };
    }
    out + "{{- end }}\n"
}
