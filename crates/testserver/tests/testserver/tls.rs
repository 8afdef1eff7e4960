//! Both servers speak TLS with their own certificate authority, verify client certificates, and can omit
//! `close_notify`.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::Version;
use listwatch_testserver::{Answer, Body, RawAnswer, RawEnd, RawServer, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{AlertDescription, ClientConfig, Error, RootCertStore};

use crate::client::{End, VERSIONS, receive, request};

async fn connect(
    addr: SocketAddr,
    ca_pem: &str,
    name: &'static str,
    alpn: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_as(None, addr, ca_pem, name, alpn).await
}

async fn connect_as(
    identity: Option<(&str, &str)>,
    addr: SocketAddr,
    ca_pem: &str,
    name: &'static str,
    alpn: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(addr).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name).unwrap(), stream).await
}

#[tokio::test]
async fn delivers_bodies_and_resets_over_tls() {
    let answers = [Answer::ok(Body::replay("list")), Answer::ok(Body::replay("list").reset_at(2))];
    for (version, alpn) in VERSIONS.into_iter().zip([&b"http/1.1"[..], b"h2"]) {
        let server = Server::start_tls(Answer::in_turn(answers.clone())).await.unwrap();
        assert_eq!(server.url(), format!("https://{}", server.addr()));
        for (name, body, end) in [("127.0.0.1", &b"list"[..], End::Clean), ("localhost", b"li", End::Broken)] {
            let io = connect(server.addr(), server.ca_pem().unwrap(), name, alpn).await.unwrap();
            assert_eq!(io.get_ref().1.alpn_protocol(), Some(alpn));
            let received = receive(request(io, version, "/").await).await;
            assert_eq!((&received.body[..], received.end), (body, end), "{version:?}");
        }
        assert_eq!(server.requests()[0].version, version);
    }
}

#[tokio::test]
async fn fails_a_client_that_trusts_another_authority() {
    let answer = || Answer::ok(Body::replay("list")).always();
    let server = Server::start_tls(answer()).await.unwrap();
    let other = Server::start_tls(answer()).await.unwrap();
    assert!(connect(server.addr(), other.ca_pem().unwrap(), "127.0.0.1", b"h2").await.is_err());
    server.no_connections().await;
    assert!(server.requests().is_empty());
    let plain = Server::start(answer()).await.unwrap();
    assert_eq!(plain.ca_pem(), None);
    assert_eq!(
        receive(request(TcpStream::connect(plain.addr()).await.unwrap(), Version::HTTP_2, "/").await).await.body,
        b"list"
    );
}

#[tokio::test]
async fn requires_a_client_certificate_of_its_own_authority() {
    let answer = || Answer::ok(Body::replay("list")).always();
    let server = Server::start_mtls(answer()).await.unwrap();
    let other = Server::start_mtls(answer()).await.unwrap();
    let connect = |identity, alpn| connect_as(identity, server.addr(), server.ca_pem().unwrap(), "localhost", alpn);
    for (version, alpn) in VERSIONS.into_iter().zip([&b"http/1.1"[..], b"h2"]) {
        let io = connect(server.client_identity(), alpn).await.unwrap();
        let received = receive(request(io, version, "/").await).await;
        assert_eq!((&received.body[..], received.end), (&b"list"[..], End::Clean), "{version:?}");

        let refused =
            [(None, AlertDescription::CertificateRequired), (other.client_identity(), AlertDescription::DecryptError)];
        for (identity, alert) in refused {
            let mut io = connect(identity, alpn).await.unwrap();
            // A server that accepted the certificate would end the connection without an error.
            io.shutdown().await.unwrap();
            let error = io.read_u8().await.unwrap_err();
            let error = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
            assert_eq!(*error, Error::AlertReceived(alert), "{version:?}");
        }
    }
    assert_eq!(server.requests().len(), 2);
    assert_eq!(server.url(), format!("https://{}", server.addr()));
    assert_eq!(Server::start_tls(answer()).await.unwrap().client_identity(), None);
}

#[tokio::test]
async fn raw_server_ends_tls_with_or_without_close_notify() {
    let cases = [
        (RawEnd::Close, None),
        (RawEnd::CloseWithoutNotify, Some(ErrorKind::UnexpectedEof)),
        (RawEnd::Reset, Some(ErrorKind::ConnectionReset)),
    ];
    for (end, error) in cases {
        let server = RawServer::start_tls([RawAnswer::new("HTTP/1.1 200 OK\r\n\r\nlist", end)]).await.unwrap();
        assert_eq!(server.url(), format!("https://{}", server.addr()));
        let mut client = connect(server.addr(), server.ca_pem().unwrap(), "127.0.0.1", b"http/1.1").await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut received = Vec::new();
        let result = client.read_to_end(&mut received).await;
        assert_eq!(result.err().map(|error| error.kind()), error, "{end:?}");
        if end != RawEnd::Reset {
            assert_eq!(received, b"HTTP/1.1 200 OK\r\n\r\nlist");
        }
        assert_eq!(server.requests(), ["GET / HTTP/1.1\r\n\r\n"]);
    }
}
