//! The proxy of the environment.

use std::env;
use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;

use super::transport::is_loopback;

/// Returns the URL of the proxy that the environment names for this server. It may contain a password, so do not log
/// it.
///
/// Implementations of [`Transport`](super::Transport) can use it. The rules are the same as in Go
/// (`golang.org/x/net/http/httpproxy`), and so in kubectl. `HTTPS_PROXY` is for `https` servers, `HTTP_PROXY` for
/// `http` servers, and `ALL_PROXY` is not used. A proxy without a scheme is `http`. `NO_PROXY` excludes servers by
/// names with their subdomains, `.suffixes`, addresses or CIDR ranges, each optionally with a port, and all servers by
/// `*`. A server on loopback has no proxy. Each variable may be in lower case, and an empty one counts as unset.
///
/// In a CGI program, where `REQUEST_METHOD` is set, `HTTP_PROXY` is ignored because it may be a header of the caller.
/// Go refuses the request instead.
#[must_use]
pub fn environment_proxy(server: &Uri) -> Option<String> {
    choose(server, |name| env::var(name).ok())
}

fn choose(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let get = |name: &str| set(name).or_else(|| set(&name.to_ascii_lowercase()));
    let (proxy, default_port) = match server.scheme_str() {
        Some("http") if set("REQUEST_METHOD").is_some() => return None,
        Some("http") => (get("HTTP_PROXY")?, 80),
        _ => (get("HTTPS_PROXY")?, 443),
    };
    let host = server.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
    let port = server.port_u16().unwrap_or(default_port);
    if is_loopback(&host) || get("NO_PROXY").is_some_and(|list| excludes(&list, &host, port)) {
        return None;
    }
    let proxy = proxy.trim();
    Some(if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") })
}

fn excludes(list: &str, host: &str, port: u16) -> bool {
    let address = host.parse::<IpAddr>().ok();
    list.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Ok(range) = entry.parse::<IpNet>() {
            return address.is_some_and(|address| range.contains(&address));
        }
        let (name, of_port) = match entry.rsplit_once(':') {
            // An IPv6 address without a port has several colons.
            Some((name, port)) if name.ends_with(']') || !name.contains(':') => (name, Some(port)),
            _ => (&*entry, None),
        };
        if of_port.is_some_and(|expected| expected.parse() != Ok(port)) {
            return false;
        }
        match (name.trim_matches(['[', ']']).parse::<IpAddr>(), address) {
            (Ok(excluded), _) => address == Some(excluded),
            (Err(_), Some(_)) => false,
            (Err(_), None) => {
                matches_domain(if name.starts_with("*.") { name.get(1..).unwrap_or_default() } else { name }, host)
            }
        }
    })
}

/// Returns true if the domain matches: `.example.com` matches its subdomains, and `example.com` itself too.
fn matches_domain(name: &str, host: &str) -> bool {
    let Some(before) = host.strip_suffix(name) else { return false };
    match name.strip_prefix('.') {
        Some(domain) => !domain.is_empty() && !before.is_empty(),
        None => !name.is_empty() && (before.is_empty() || before.ends_with('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of `TestProxyForURL` and `TestUseProxy` in httpproxy, and of kubectl's users.
    #[test]
    fn chooses_the_proxy_by_the_rules_of_go() {
        let proxy = "HTTPS_PROXY=http://proxy:3128";
        for (server, variables, expected) in [
            ("https://10.0.0.1:6443", "", None),
            ("https://10.0.0.1:6443", proxy, Some("http://proxy:3128")),
            ("https://api.example.com", "https_proxy=proxy:3128", Some("http://proxy:3128")),
            ("https://api.example.com", "HTTPS_PROXY= https_proxy=proxy", Some("http://proxy")),
            ("https://api.example.com", "HTTPS_PROXY=socks5://proxy:1080", Some("socks5://proxy:1080")),
            ("https://api.example.com", "HTTP_PROXY=http://proxy", None),
            ("http://api.example.com", "HTTP_PROXY=http://proxy", Some("http://proxy")),
            ("http://api.example.com", "HTTP_PROXY=http://proxy REQUEST_METHOD=GET", None),
            ("http://api.example.com", proxy, None),
            ("http://api.example.com", "HTTP_PROXY=http://proxy REQUEST_METHOD=", Some("http://proxy")),
            ("https://api.example.com", "HTTPS_PROXY=http://proxy REQUEST_METHOD=GET", Some("http://proxy")),
            ("https://api.example.com", "HTTPS_PROXY=one https_proxy=other", Some("http://one")),
            ("https://api.example.com", "ALL_PROXY=socks5://all all_proxy=socks5://all", None),
            ("https://api.example.com", "ALL_PROXY=socks5://all HTTPS_PROXY=one", Some("http://one")),
            ("https://api.example.com", "HTTPS_PROXY=one no_proxy=example.com", None),
            ("https://api.example.com", "HTTPS_PROXY=one NO_PROXY= no_proxy=example.com", None),
            ("https://api.example.com", "HTTPS_PROXY=one NO_PROXY=other no_proxy=example.com", Some("http://one")),
            ("https://localhost:6443", proxy, None),
            ("https://127.0.0.1:6443", proxy, None),
            ("https://127.9.9.9:6443", proxy, None),
            ("https://[::1]:6443", proxy, None),
        ] {
            let uri = Uri::from_static(server);
            assert_eq!(choose(&uri, of(variables)).as_deref(), expected, "{server} with {variables:?}");
        }
    }

    fn of(variables: &str) -> impl Fn(&str) -> Option<String> {
        let pairs: Vec<_> = variables.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        move |name| pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn excludes_servers_by_the_rules_of_go() {
        for (list, server, expected) in [
            ("", "https://api.example.com", false),
            (",, ,", "https://api.example.com", false),
            ("*", "https://api.example.com", true),
            ("*", "https://10.0.0.1", true),
            ("example.com", "https://example.com", true),
            ("example.com", "https://api.example.com", true),
            ("example.com", "https://notexample.com", false),
            ("EXAMPLE.com", "https://api.Example.COM", true),
            (".example.com", "https://example.com", false),
            (".example.com", "https://api.example.com", true),
            ("*.example.com", "https://api.example.com", true),
            ("*.example.com", "https://example.com", false),
            ("*example.com", "https://example.com", false),
            ("*", "https://a.b", true),
            ("other, *", "https://a.b", true),
            ("example.com:6443", "https://api.example.com:6443", true),
            ("example.com:443", "https://api.example.com", true),
            ("example.com:443", "https://api.example.com:6443", false),
            ("example.com:https", "https://api.example.com", false),
            ("10.0.0.1", "https://10.0.0.1:6443", true),
            ("10.0.0.1:6443", "https://10.0.0.1:6443", true),
            ("10.0.0.1:443", "https://10.0.0.1:6443", false),
            ("10.0.0.0/8", "https://10.1.2.3", true),
            ("10.0.0.0/8, .local,", "https://11.1.2.3", false),
            ("fd00::/8", "https://[fd00::1]:6443", true),
            ("fd00::1", "https://[fd00::1]:6443", true),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
            ("[fd00::1]:443", "https://[fd00::1]:6443", false),
            ("proxy.example.com", "https://api.example.com", false),
            ("0.0.1", "https://10.0.0.1", false),
            (".", "https://api.example.com", false),
            (":6443", "https://api.example.com:6443", false),
        ] {
            let variables = |name: &str| match name {
                "HTTPS_PROXY" => Some("proxy".to_owned()),
                "NO_PROXY" => Some(list.to_owned()),
                _ => None,
            };
            let proxy = choose(&Uri::from_static(server), variables);
            assert_eq!(proxy.is_none(), expected, "{list:?} for {server}");
        }
    }
}
