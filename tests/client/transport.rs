//! Connections: how they begin and end, TLS, credentials and redirects; over HTTP/1.1 and HTTP/2.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use futures::StreamExt;
use listwatch::client::{Client, Config, Error, ErrorKind, Resource, Retry, TransportErrorKind, WatchParams};
use listwatch_testserver::{
    Answer, Body, RawAnswer, RawEnd, RawServer, RecordedRequest, Server, Synthesizer, TOKEN, leak, recorded_pods,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::support::process::test_name;
use crate::support::server::{
    anonymous, authority, builder, client, client_of, pods, quick, recorded, serve, serve_by,
};

fn list() -> Answer {
    Answer::ok(Body::replay(recorded_pods()))
}

#[track_caller]
fn transport_kind(error: &Error) -> TransportErrorKind {
    let ErrorKind::Transport(transport) = error.kind() else { panic!("{error}") };
    transport.kind()
}

#[tokio::test]
async fn a_refused_connection_is_retryable_and_names_the_address() {
    let server = serve(Answer::ok(Body::replay(""))).await;
    let url = server.url();
    drop(server);
    for http2 in [false, true] {
        let error = pods(&client_of(builder(&url, http2))).into_vec().await.unwrap_err();
        assert_eq!(transport_kind(&error), TransportErrorKind::Connect, "{error}");
        assert!(error.is_retryable());
        let address = url.strip_prefix("http://").unwrap();
        let expected = format!("cannot connect to {address}: connection refused");
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn retries_connections_that_break_before_the_head() {
    let list = {
        let body = recorded_pods();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        RawAnswer::new([head.as_bytes(), &body].concat(), RawEnd::Close)
    };
    for (name, bytes) in [("nothing", ""), ("half a head", "HTTP/1.1 200 OK\r\nconte")] {
        for end in [RawEnd::Close, RawEnd::Reset] {
            let broken = RawAnswer::new(bytes, end);
            let server = RawServer::start([broken.clone(), broken, list.clone()]).await.unwrap();
            let (items, summary) = pods(&client_of(builder(&server.url(), false))).into_vec().await.expect(name);
            assert_eq!((items.len(), summary.attempts), (120, 3), "{name}");
        }
    }
}

#[tokio::test]
async fn follows_redirects_within_the_origin_with_the_credentials() {
    for code in [301, 302, 303, 307, 308] {
        let server = serve_by(move |request: &RecordedRequest, _| {
            if !request.path.starts_with("/moved/") {
                let answer = Answer::ok(Body::replay("")).status(code);
                return answer.header("location", &format!("/moved{}", request.path));
            }
            if request.path.contains("watch=") {
                return Answer::ok(Body::replay("")).status(410);
            }
            list()
        })
        .await;
        let client = client(&server, false).retry(Retry::never());
        assert_eq!(pods(&client).into_vec().await.unwrap().0.len(), 120);
        client.get::<[u8]>(&Resource::PODS, Some("web"), "a").await.unwrap_err();
        client.resolve("widgets").await.unwrap_err();
        let watch = client.watch::<[u8]>(&Resource::PODS, &WatchParams::from_version("1"));
        assert_eq!(watch.open().await.map(drop).unwrap_err().code(), Some(410));
        let requests = server.requests();
        let moved: Vec<_> = requests.iter().filter(|request| request.path.starts_with("/moved/")).collect();
        assert_eq!(2 * moved.len(), requests.len());
        assert!(moved.iter().any(|request| request.path.starts_with("/moved/api/v1/pods?")));
        assert!(moved.iter().any(|request| request.path.starts_with("/moved/api/v1/namespaces/web/pods/a")));
        assert!(moved.iter().any(|request| request.path.contains("watch=")));
        assert!(moved.iter().any(|request| request.path.starts_with("/moved/apis")));
        assert!(requests.iter().all(|request| request.headers["authorization"] == format!("Bearer {TOKEN}")));
    }
}

#[tokio::test]
async fn a_loop_of_redirects_is_an_error() {
    let server = serve(Answer::ok(Body::replay("")).status(307).header("location", "/loop")).await;
    let error = pods(&client(&server, false)).into_vec().await.unwrap_err();
    assert_eq!(error.to_string(), "the server redirects again after 10 requests");
    assert_eq!(server.requests().len(), 10);
}

/// As many as gateways send: Go limits only the bytes.
#[tokio::test]
async fn accepts_many_and_large_headers() {
    let body = recorded_pods();
    for (count, size) in [(1_000, 20), (100, 3_000), (1, 60_000)] {
        let cookie = format!("set-cookie: {}\r\n", "x".repeat(size));
        let head = format!("HTTP/1.1 200 OK\r\n{}content-length: {}\r\n\r\n", cookie.repeat(count), body.len());
        let server =
            RawServer::start([RawAnswer::new([head.as_bytes(), &body].concat(), RawEnd::Close)]).await.unwrap();
        let client = client_of(builder(&server.url(), false)).retry(Retry::never());
        assert_eq!(pods(&client).into_vec().await.unwrap().0.len(), 120, "{count} of {size}");
    }
}

/// An image without certificates needs none for `http`, nor with the authority of a cluster. Runs itself again, because
/// the paths of the platform's certificates come from the environment.
#[tokio::test]
async fn loads_the_authorities_of_the_platform_for_a_handshake_only() {
    const NOWHERE: &str = "/nowhere/certificates";
    if std::env::var("SSL_CERT_FILE").is_ok_and(|file| file == NOWHERE) {
        let server = serve(list()).await;
        assert_eq!(pods(&client(&server, false)).into_vec().await.unwrap().0.len(), 120);
        let server = Server::start_tls(list().always()).await.unwrap();
        let ca = server.ca_pem().unwrap().to_owned();
        let with_authority = client_of(Config::new(server.url()).ca_pem(ca));
        assert_eq!(pods(&with_authority).into_vec().await.unwrap().0.len(), 120);
        let error = pods(&client_of(Config::new(server.url()))).into_vec().await.unwrap_err();
        assert_eq!(transport_kind(&error), TransportErrorKind::Tls);
        let expected = "the platform has no certificate authorities, and none was configured for the server";
        assert!(error.to_string().contains(expected), "{error}");
        return;
    }
    let this_test = test_name(module_path!(), "loads_the_authorities_of_the_platform_for_a_handshake_only");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &this_test]).env("SSL_CERT_FILE", NOWHERE).env_remove("SSL_CERT_DIR");
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[tokio::test]
async fn redirects_are_refused() {
    let elsewhere = serve(list()).await;
    for code in [301, 302, 307, 308] {
        let location = format!("{}/api/v1/pods?token={TOKEN}", elsewhere.url());
        let server = serve(Answer::ok(Body::replay("")).status(code).header("location", &location)).await;
        for http2 in [false, true] {
            let error = pods(&client(&server, http2)).into_vec().await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Redirect { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("the server redirects to {} (", elsewhere.url())), "{text}");
            assert_eq!(leak(text.as_bytes()), None);
        }
    }
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_redirect_to_another_origin_carries_no_impersonation() {
    let elsewhere = serve(list()).await;
    for code in [301, 302, 303, 307, 308] {
        let location = format!("{}/api/v1/pods", elsewhere.url());
        let server = serve(Answer::ok(Body::replay("")).status(code).header("location", &location)).await;
        let config = Config::new(server.url()).bearer_token(TOKEN).ca_pem(authority());
        let mut headers = http::HeaderMap::new();
        headers.insert("impersonate-extra-scopes", "cluster-admin".parse().unwrap());
        let config = config.impersonate("cluster-admin", Some("7".to_owned()), ["system:masters"]).headers(headers);
        let error = pods(&client_of(config)).into_vec().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Redirect { .. }), "{error}");
        let [request] = &server.requests()[..] else { panic!("one request: {:?}", server.requests()) };
        for (name, value) in [
            ("impersonate-user", "cluster-admin"),
            ("impersonate-uid", "7"),
            ("impersonate-group", "system:masters"),
            ("impersonate-extra-scopes", "cluster-admin"),
        ] {
            assert_eq!(request.headers[name], value, "{code}");
        }
    }
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn tokens_in_files_are_read_again() {
    let path = std::env::temp_dir().join(format!("listwatch-token-{}", std::process::id()));
    let by_token =
        |request: &listwatch_testserver::RecordedRequest, _| match request.headers["authorization"].to_str().unwrap() {
            "Bearer new" => list(),
            _ => recorded("error-401.pb").status(401),
        };
    for http2 in [false, true] {
        let client =
            |server: &Server| client_of(anonymous(&server.url(), http2).token_file(&path)).retry(Retry::never());
        // The file changes between two lists.
        std::fs::write(&path, "old\n").unwrap();
        let server = serve_by(by_token).await;
        let lists = client(&server);
        // The token stays wrong: the request is retried once.
        let error = pods(&lists).into_vec().await.unwrap_err();
        assert_eq!(error.code(), Some(401), "{error}");
        assert_eq!(server.requests().len(), 2);
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(pods(&lists).into_vec().await.unwrap().1.attempts, 1);
        // The file changes during a request.
        let changing = path.clone();
        let server = serve_by(move |request: &_, n| {
            let answer = by_token(request, n);
            std::fs::write(&changing, "new").unwrap();
            answer
        })
        .await;
        std::fs::write(&path, "old").unwrap();
        assert_eq!(pods(&client(&server)).into_vec().await.unwrap().1.attempts, 2);
        // 403 is fatal.
        let server = serve(recorded("error-403.pb").status(403)).await;
        assert_eq!(pods(&client(&server)).into_vec().await.unwrap_err().code(), Some(403));
        assert_eq!(server.requests().len(), 1);
        // No file.
        std::fs::remove_file(&path).unwrap();
        let error = pods(&client(&server)).into_vec().await.unwrap_err();
        assert!(error.to_string().starts_with("no valid credentials: "), "{error}");
    }
}

#[tokio::test]
async fn trusts_the_given_authority_only() {
    let server = Server::start_tls(list().always()).await.unwrap();
    let other = Server::start_tls(Answer::ok(Body::replay("")).always()).await.unwrap();
    let client = |ca: Option<&str>| {
        let builder = Config::new(server.url());
        Client::new(ca.iter().fold(builder, |builder, ca| builder.ca_pem(*ca)).build().unwrap()).retry(quick())
    };
    assert_eq!(pods(&client(server.ca_pem())).into_vec().await.unwrap().0.len(), 120);
    let before = server.accepted();
    for ca in [None, other.ca_pem()] {
        let error = pods(&client(ca)).into_vec().await.unwrap_err();
        assert_eq!(transport_kind(&error), TransportErrorKind::Tls, "{error}");
        assert!(!error.is_retryable());
    }
    assert_eq!(server.accepted(), before + 2, "a bad certificate was retried");
}

/// The authority and the client's certificate are replaced while the client runs, and so is the server.
#[tokio::test]
async fn rotated_certificates_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["ca", "certificate", "key"].map(|name| folder.path().join(name));
    let [old, new] =
        [Server::start_mtls(list().always()).await.unwrap(), Server::start_mtls(list().always()).await.unwrap()];
    let install = |server: &Server| {
        let (certificate, key) = server.client_identity().unwrap();
        for (path, pem) in paths.iter().zip([server.ca_pem().unwrap(), certificate, key]) {
            std::fs::write(path, pem).unwrap();
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let upstream = std::sync::Arc::new(std::sync::Mutex::new(old.addr()));
    let (to, mut connections) = (std::sync::Arc::clone(&upstream), tokio::task::JoinSet::new());
    let (replace, mut replaced) = tokio::sync::mpsc::channel::<()>(1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                Ok((mut from, _)) = listener.accept() => {
                    let to = *to.lock().unwrap();
                    connections.spawn(async move {
                        let mut to = tokio::net::TcpStream::connect(to).await.unwrap();
                        drop(tokio::io::copy_bidirectional(&mut from, &mut to).await);
                    });
                }
                Some(()) = replaced.recv() => connections.shutdown().await,
                else => return,
            }
        }
    });
    install(&old);
    let builder = Config::new(&url).ca_file(&paths[0]).client_certificate_files(&paths[1], &paths[2]);
    let client = client_of(builder);
    assert_eq!(pods(&client).into_vec().await.unwrap().1.attempts, 1);
    *upstream.lock().unwrap() = new.addr();
    replace.send(()).await.unwrap();
    // The files are replaced later than the server, and one after the other.
    for _ in 0..3 {
        let error = pods(&client.clone().retry(Retry::never())).into_vec().await.unwrap_err();
        assert!(matches!(transport_kind(&error), TransportErrorKind::Tls | TransportErrorKind::Broken), "{error}");
        std::fs::write(&paths[0], "").unwrap();
    }
    install(&new);
    pods(&client).into_vec().await.unwrap();
}

#[tokio::test]
async fn sends_the_headers_and_expects_the_server_name_that_are_set() {
    let server = Server::start_tls(list().always()).await.unwrap();
    let builder = |name: &str| {
        let builder = Config::new(server.url()).ca_pem(server.ca_pem().unwrap()).tls_server_name(name);
        let builder = builder.user_agent("auditor/1.0").on_caller_runtime();
        let headers = [("impersonate-user", "jane"), ("impersonate-group", "dev"), ("impersonate-group", "ops")];
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let mut map = http::HeaderMap::new();
        for (name, value) in headers {
            let name: http::HeaderName = name;
            map.append(name, value);
        }
        let builder = builder.headers(map);
        client_of(builder)
    };
    assert_eq!(pods(&builder("localhost")).into_vec().await.unwrap().0.len(), 120);
    let error = pods(&builder("other.example")).into_vec().await.unwrap_err();
    assert_eq!(transport_kind(&error), TransportErrorKind::Tls, "{error}");
    for request in server.requests() {
        assert_eq!(request.headers["host"], server.addr().to_string());
        assert_eq!(request.headers["user-agent"], "auditor/1.0");
        assert_eq!(request.headers["impersonate-user"], "jane");
        let groups: Vec<_> = request.headers.get_all("impersonate-group").iter().collect();
        assert_eq!(groups, ["dev", "ops"]);
    }
}

#[tokio::test]
async fn the_user_agent_is_the_librarys_unless_one_is_set() {
    let server = serve(list()).await;
    let config = || Config::new(server.url()).ca_pem(authority());
    for config in [config(), config().user_agent("set/3")] {
        pods(&client_of(config)).into_vec().await.unwrap();
    }
    let sent: Vec<_> = server.requests().iter().map(|request| request.headers["user-agent"].clone()).collect();
    assert_eq!(sent, [concat!("listwatch/", env!("CARGO_PKG_VERSION")), "set/3"]);
}

/// It gets requests to loopback, too, unlike a proxy from the environment.
#[tokio::test]
async fn a_proxy_that_is_set_gets_the_requests() {
    let proxy = serve(list()).await;
    let client = client_of(Config::new("http://127.0.0.1:1").proxy(proxy.url()));
    assert_eq!(pods(&client).into_vec().await.unwrap().0.len(), 120);
    assert_eq!(proxy.requests().len(), 1);
}

/// With TLS 1.3 the server refuses a client after the handshake, when the request is already sent.
#[tokio::test]
async fn a_wrong_client_certificate_is_refused() {
    let server = Server::start_mtls(list().always()).await.unwrap();
    let other = Server::start_mtls(list().always()).await.unwrap();
    let client = |identity: Option<(&str, &str)>| {
        let builder = Config::new(server.url()).bearer_token(TOKEN).ca_pem(server.ca_pem().unwrap());
        let builder = match identity {
            Some((certificate, key)) => builder.client_certificate(certificate, key),
            None => builder,
        };
        Client::new(builder.build().unwrap()).retry(quick())
    };
    assert_eq!(pods(&client(server.client_identity())).into_vec().await.unwrap().0.len(), 120);
    for identity in [None, other.client_identity()] {
        let before = server.accepted();
        let error = pods(&client(identity)).into_vec().await.unwrap_err();
        assert_eq!(transport_kind(&error), TransportErrorKind::Tls, "{error}");
        assert_eq!((error.is_retryable(), server.accepted()), (false, before + 1), "{error}");
        assert!(!format!("{error:?}").contains("PRIVATE"));
    }
}

/// A list that is being read when the server sends GOAWAY completes; the next list uses a new connection.
#[tokio::test]
async fn a_goaway_lets_the_list_finish() {
    let server = serve(Answer::ok(Body::synthesize(Synthesizer::new(&recorded_pods(), 5000).unwrap()))).await;
    for http2 in [false, true] {
        let client = client(&server, http2);
        for _ in 0..2 {
            let before = server.accepted();
            let mut items = pods(&client);
            items.next().await.unwrap().unwrap();
            server.goaway();
            let rest = items.by_ref().map(Result::unwrap).count().await;
            let summary = items.summary().unwrap();
            assert_eq!((rest, summary.attempts, server.accepted()), (4999, 1, before + 1));
        }
    }
}

#[tokio::test]
async fn truncated_tls_is_incomplete() {
    let body = recorded_pods();
    let bytes = [b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", &body[..body.len() / 2]].concat();
    for end in [RawEnd::Close, RawEnd::CloseWithoutNotify, RawEnd::Reset] {
        let server = RawServer::start_tls([RawAnswer::new(bytes.clone(), end)]).await.unwrap();
        let transport = Config::new(server.url()).ca_pem(server.ca_pem().unwrap()).build().unwrap();
        let error = pods(&Client::new(transport).retry(Retry::never())).into_vec().await.unwrap_err();
        // A reset discards what the client has not read yet, even the head.
        let broken = || transport_kind(&error) == TransportErrorKind::Broken;
        assert!(error.is_incomplete() || matches!(end, RawEnd::Reset) && broken(), "{error}");
    }
}

/// The kernel accepts the connection, and no server answers the handshake.
#[tokio::test]
async fn the_connect_timeout_ends_a_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let opening = builder(&url, false).connect_timeout(Duration::from_millis(50));
    let error = pods(&client_of(opening).retry(Retry::never())).into_vec().await.unwrap_err();
    assert_eq!(transport_kind(&error), TransportErrorKind::Connect, "{error}");
    assert!(error.is_retryable());
}

/// A dropped list closes its HTTP/1.1 connection, and a dropped client every connection.
#[tokio::test]
async fn a_dropped_list_leaves_no_connection() {
    let body = Body::synthesize(Synthesizer::new(&recorded_pods(), 100_000).unwrap());
    for gzip in [false, true] {
        let body = if gzip { body.clone().gzip() } else { body.clone() };
        let server = serve(Answer::ok(body)).await;
        for http2 in [false, true] {
            let client = client(&server, http2);
            let mut items = pods(&client);
            items.next().await.unwrap().unwrap();
            drop(items);
            if !http2 {
                server.no_connections().await;
            }
            drop(client);
            server.no_connections().await;
        }
    }
}

/// `MicroK8s` issues certificates of X.509 version 1.
#[test]
fn accepts_the_client_certificates_that_go_sends() {
    let with = |certificate: &str, key: &str| {
        let config = Config::new("https://127.0.0.1:1").client_certificate(certificate, key);
        config.build().map(drop).map_err(|error| error.to_string())
    };
    let pem = include_str!("../support/certificates/version-1.pem");
    assert_eq!(with(pem, pem), Ok(()));
    let missing = "the client certificate and key: not one of each as PEM";
    assert_eq!(with("no PEM", "s3cret"), Err(missing.to_owned()));
    let rsa = include_str!("../support/certificates/rsa-1024.pem");
    let too_small = "the client certificate has an RSA key of 1024 bits, and at least 2048 are required";
    assert_eq!(with(rsa, rsa), Err(too_small.to_owned()));
}

/// The transport must remember the token: the file may have changed by the time of the response.
#[tokio::test]
async fn redacts_a_sent_token_after_its_file_is_removed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "t0ken-of-a-file").unwrap();
    let path = file.path().to_owned();
    let server = serve_by(move |_, _| {
        drop(std::fs::remove_file(&path));
        Answer::ok(Body::replay("not with t0ken-of-a-file")).status(400)
    })
    .await;
    let client = client_of(Config::new(server.url()).token_file(file.path()));
    let error = pods(&client).into_vec().await.unwrap_err();
    assert_eq!(server.requests()[0].headers["authorization"], "Bearer t0ken-of-a-file");
    assert_eq!(error.to_string(), "API error: 400: not with [redacted]");
}

/// Without probes from the kernel, a connection that a firewall has dropped would look idle.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn enables_keepalive_on_connections() {
    let server = serve(Answer::ok(Body::replay("k8s").stall_at(1))).await;
    let client = client_of(Config::new(server.url()));
    let watch = client.watch::<[u8]>(&Resource::PODS, &WatchParams::from_version("1"));
    let _watch = watch.open().await.unwrap();
    // Fields: 1 local address, 2 peer address, 3 state (01 established), 5 `timer:when` (02 keepalive).
    let peer = format!("0100007F:{:04X}", server.addr().port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let socket = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let socket = socket.into_iter().find(|fields| fields[2] == peer && fields[3] == "01").expect("the connection");
    assert!(socket[5].starts_with("02:"), "{socket:?}");
}

/// A proxy that tunnels each connection to this server, whatever it is asked for. Returns its port, and what the clients
/// said before the tunnel was open.
async fn tunnel(server: SocketAddr) -> (u16, mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, (said, received)) = (listener.local_addr().unwrap().port(), mpsc::unbounded_channel());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let first = client.read_u8().await.unwrap();
            let mut head = vec![first];
            if first == 5 {
                // SOCKS5: the methods, the user, and the address by its name.
                let mut methods = vec![0; usize::from(client.read_u8().await.unwrap())];
                client.read_exact(&mut methods).await.unwrap();
                client.write_all(&[5, 2]).await.unwrap();
                let mut user = [0; 1 + 1 + 2 + 1 + 6];
                client.read_exact(&mut user).await.unwrap();
                client.write_all(&[1, 0]).await.unwrap();
                let mut request = [0; 5];
                client.read_exact(&mut request).await.unwrap();
                let mut address = vec![0; usize::from(request[4]) + 2];
                client.read_exact(&mut address).await.unwrap();
                head.extend([&user[..], &request, &address].concat());
                client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
            } else {
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            }
            drop(said.send(head));
            let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop) });
        }
    });
    (port, received)
}

/// No case needs a name server: the proxy resolves names.
#[tokio::test]
async fn tunnels_tls_through_proxies_with_their_credentials() {
    let server = Server::start_tls(list().always()).await.unwrap();
    let (port, mut received) = tunnel(server.addr()).await;
    let config = |proxy: String| {
        let config = Config::new("https://api.invalid:6443").ca_pem(server.ca_pem().unwrap());
        client_of(config.tls_server_name("localhost").proxy(proxy))
    };
    assert_eq!(pods(&config(format!("http://me:s3cret@127.0.0.1:{port}"))).into_vec().await.unwrap().0.len(), 120);
    let head = String::from_utf8(received.recv().await.unwrap()).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("connect api.invalid:6443 http/1.1\r\n"), "{head}");
    assert!(head.contains("proxy-authorization: basic bwu6cznjcmv0"), "{head}");
    for scheme in ["socks5", "socks5h"] {
        let client = config(format!("{scheme}://me:s3cret@127.0.0.1:{port}"));
        assert_eq!(pods(&client).into_vec().await.unwrap().0.len(), 120);
        let head = received.recv().await.unwrap();
        let expected = [b"\x05\x01\x02me\x06s3cret\x05\x01\x00\x03\x0bapi.invalid".as_slice(), &6443_u16.to_be_bytes()];
        assert_eq!(head, expected.concat(), "{scheme}");
    }
}

/// Runs itself again, because the kubeconfig comes from the environment.
#[tokio::test]
async fn the_default_client_reads_the_kubeconfig_of_the_environment() {
    const ASKED: &str = "LISTWATCH_TRY_DEFAULT";
    if std::env::var_os(ASKED).is_some() {
        let client = Client::try_default().unwrap();
        assert_eq!(pods(&client).into_vec().await.unwrap().0.len(), 120);
        return;
    }
    let server = Server::start_tls(list().always()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(folder.path().join("ca"), server.ca_pem().unwrap()).unwrap();
    let kubeconfig = serde_json::json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": server.url(), "certificate-authority": "ca"}}],
        "users": [{"name": "a", "user": {"token": TOKEN}}],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let name = "transport::the_default_client_reads_the_kubeconfig_of_the_environment";
    again.args([name, "--exact"]).env("KUBECONFIG", &file).env(ASKED, "yes");
    let output = tokio::task::spawn_blocking(move || again.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(server.requests()[0].headers["authorization"], format!("Bearer {TOKEN}"));
}
