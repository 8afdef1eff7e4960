//! Kubeconfigs that client-go's tests accept or refuse (`tools/clientcmd/*_test.go`), and those of reports about kube.

use std::fs;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use super::*;
use crate::client::http_transport::{Authority, Identity, InteractiveMode, Login, Pem};

/// A kubeconfig with one context, with more fields in its cluster, context and user.
fn one(cluster: &str, context: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: one\n\
         clusters: [{{name: c, cluster: {{server: \"https://host:6443\"{cluster}}}}}]\n\
         contexts: [{{name: one, context: {{cluster: c, user: u{context}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    )
}

/// Loads these files, in a folder where `./ca` and others are found.
fn load_files(folder: &Path, texts: &[&[u8]], options: &Kubeconfig) -> Result<Option<Config>> {
    let mut files = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let file = folder.join(number.to_string());
        fs::write(&file, text).unwrap();
        // A missing file and a repeated one are skipped.
        files.extend([file.clone(), folder.join("missing"), file]);
    }
    options.select_config(&MergedFiles::read(&files, false)?)
}

fn load_with(texts: &[&[u8]], options: &Kubeconfig) -> std::result::Result<Option<Config>, String> {
    let folder = tempfile::tempdir().unwrap();
    let loaded = load_files(folder.path(), texts, options);
    loaded.map_err(|error| error.replace(&*folder.path().to_string_lossy(), "/d"))
}

fn load(text: &str) -> Config {
    load_with(&[text.as_bytes()], &Kubeconfig::default()).expect(text).expect(text)
}

/// The settings that a kubeconfig leads to, on one line; those with their default are left out.
fn settings(config: &Config) -> String {
    let mut set = vec![("server", config.server().to_owned())];
    let mut add = |key, value: Option<String>| set.extend(value.map(|value| (key, value)));
    let text = |secret: &SecretString| secret.expose_secret().to_owned();
    add("namespace", config.namespace.clone());
    match &config.connection.authority {
        Authority::Platform => {}
        Authority::Pem(pem) => add("ca", Some(String::from_utf8_lossy(pem).matches("BEGIN").count().to_string())),
        Authority::File(file) => add("ca-file", Some(file.display().to_string())),
        Authority::Unverified => add("insecure", Some(String::new())),
    }
    add("uncompressed", config.disables_compression().then(String::new));
    add("tls-name", config.connection.server_name.clone());
    add("proxy", config.connection.proxy.as_ref().map(text));
    match &config.login {
        Login::None => {}
        Login::Token(token) => add("token", Some(text(token))),
        Login::TokenFile { path, initial } => {
            add("token", initial.as_ref().map(text));
            add("token-file", Some(path.display().to_string()));
        }
        Login::Password(user, password) => {
            add("user", Some(user.clone()));
            add("password", Some(text(password)));
        }
        Login::Exec(exec) => add("exec", Some(exec.command.clone())),
        Login::Provider(provider) => add("provider", Some(format!("{} {}", provider.name, provider.settings.len()))),
    }
    if let Some(Identity { certificate, key }) = &config.identity {
        for (data, file, pem) in [("cert-data", "cert", certificate), ("key-data", "key", key)] {
            match pem {
                Pem::Text(pem) => add(data, Some(text(pem))),
                Pem::File(path) => add(file, Some(path.display().to_string())),
            }
        }
    }
    if let Some(user) = &config.impersonation {
        add("as", Some(user.user.clone()));
        add("as-uid", user.uid.clone());
        add("as-groups", (!user.groups.is_empty()).then(|| user.groups.join("+")));
        add("as-extra", (!user.extra.is_empty()).then(|| format!("{:?}", user.extra)));
    }
    set.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn reads_what_kubectl_reads() {
    let server = "server=https://host:6443/";
    let ca = rcgen_pem();
    let encoded = base64_of(&ca);
    let (head, tail) = encoded.split_at(64);
    let twice = base64_of(encoded.as_bytes());
    let block = format!(
        "apiVersion: v1\nclusters:\n- name: c\n  cluster:\n    server: https://host:6443\n    certificate-authority-data: |\n      {head}\n      {tail}\n\
         contexts:\n- name: one\n  context:\n    cluster: c\ncurrent-context: one\n"
    );
    for (text, expected) in [
        (one("", "", "token: abc"), format!("{server} token=abc")),
        // Empty and null mean unset.
        (
            one(
                ", certificate-authority: '', certificate-authority-data: '', proxy-url: '', tls-server-name: '', insecure-skip-tls-verify: null, extensions: null",
                ", namespace: '', extensions: []",
                "token: '', tokenFile: '', username: '', password: '', client-certificate: '', client-certificate-data: '', client-key: '', \
                 client-key-data: '', as: '', as-uid: '', as-groups: null, as-user-extra: null, exec: null, auth-provider: null",
            ),
            server.to_owned(),
        ),
        (one("", "", "").replace("user: u", "user: ''"), server.to_owned()),
        (one("", "", "").replace(", user: u", ""), server.to_owned()),
        // As in client-go, an unknown user is a request without credentials (kube-rs 1594).
        (one("", "", "token: abc").replace("user: u", "user: other"), server.to_owned()),
        (one("", "", "token: abc").replace("user: {", "unknown: 1, user: {new-field: [1, {a: b}], "), format!("{server} token=abc")),
        (format!("{}preferences: {{colors: true}}\nextensions: [{{name: e, extension: {{a: 1}}}}]\n", one("", "", "")), server.to_owned()),
        // Other entries may lack what they need (kube-rs 1076).
        (
            one("", "", "")
                .replace("contexts: [", "contexts: [{}, {name: two}, {name: three, context: {}}, ")
                .replace("users: [", "users: [{name: x, user: {auth-provider: {name: oidc, config: ~}}}, {name: y}, "),
            server.to_owned(),
        ),
        (one(", insecure-skip-tls-verify: yes, disable-compression: true", "", ""), format!("{server} insecure= uncompressed=")),
        (one(", proxy-url: 'socks5://me:pw@proxy:1080', tls-server-name: 10.0.0.1", ", namespace: web", ""), format!("{server} namespace=web tls-name=10.0.0.1 proxy=socks5://me:pw@proxy:1080")),
        (one("", "", "username: me"), format!("{server} user=me password=")),
        (one("", "", "password: pw"), format!("{server} user= password=pw")),
        (one("", "", "token: abc, tokenFile: /t"), format!("{server} token=abc token-file=/t")),
        (one("", "", "client-certificate-data: 'YQ ==', client-key-data: \"Y\\ng==\\r\\n\""), format!("{server} cert-data=a key-data=b")),
        // A key without a certificate is ignored.
        (one("", "", "client-key: /k, client-key-data: YQ=="), server.to_owned()),
        (one("", "", "as: jane, as-uid: '7', as-groups: [a, b], as-user-extra: {scopes: [x, '']}"), format!("{server} as=jane as-uid=7 as-groups=a+b as-extra=[(\"scopes\", [\"x\", \"\"])]")),
        (one("", "", "auth-provider: {name: gcp, config: {access-token: t, expiry: ''}}"), format!("{server} provider=gcp 2")),
        (one("", "", "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, args: null, env: null, installHint: '', interactiveMode: '', provideClusterInfo: null}"), format!("{server} exec=aws")),
        // Not booleans.
        (one("", ", namespace: on", "as: y"), format!("{server} namespace=on as=y")),
        // Base64 with line breaks, and decoded by YAML first.
        (block.clone(), format!("{server} ca=1")),
        (block.replace("data: |", "data: >-"), format!("{server} ca=1")),
        (one(&format!(", certificate-authority-data: !!binary {twice}"), "", ""), format!("{server} ca=1")),
        // Addresses: without a scheme, in upper case, with a path, a query, or a user.
        (one("", "", "").replace("https://host:6443", "host:8080"), "server=http://host:8080/".to_owned()),
        (one("", "", "").replace("https://host:6443", "host"), "server=http://host/".to_owned()),
        (one("", "", "").replace("https://host:6443", "HTTPS://host/k8s/c-1/?a=b#c"), "server=https://host/k8s/c-1/".to_owned()),
        (one("", "", "").replace("https://host:6443", "https://[::1]:6443"), "server=https://[::1]:6443/".to_owned()),
        (one("", "", "").replace("https://host:6443", "https://me:p%40ss@host:6443"), format!("{server} user=me password=p@ss")),
        // YAML: repeated keys, anchors, documents. The first document wins.
        (format!("{}current-context: one\n", one("", "", "")), server.to_owned()),
        (one("", "", "").replace("users: [", "users: [{name: v, user: &v {token: abc}}, ").replace("name: u, user: {", "name: u, user: {<<: *v, "), format!("{server} token=abc")),
        (format!("---\n{}---\ncurrent-context: two\n---\n", one("", "", "")), server.to_owned()),
        (one("", "", "").replace("apiVersion: v1\n", "").replace("kind: Config\n", ""), server.to_owned()),
        (format!("\u{feff}{}", one("", "", "")), server.to_owned()),
        // JSON, with tabs, which YAML forbids.
        ("{\n\t\"clusters\": [{\"name\": \"c\", \"cluster\": {\"server\": \"https://host:6443\"}}],\n\t\"contexts\": [{\"name\": \"one\", \"context\": {\"cluster\": \"c\"}}],\n\t\"users\": null, \"current-context\": \"one\"}".to_owned(), server.to_owned()),
        // A cluster without a name.
        ("clusters: [{cluster: {server: 'https://host:6443'}}]\ncontexts: [{name: one, context: {user: u}}]\ncurrent-context: one\n".to_owned(), server.to_owned()),
    ] {
        assert_eq!(settings(&load(&text)), expected, "{text}");
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine};
    BASE64_STANDARD.encode(bytes)
}

/// A section of PEM that is a certificate by its label.
fn rcgen_pem() -> Vec<u8> {
    format!("# a comment\n-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", base64_of(&[1; 90]))
        .into_bytes()
}

#[test]
fn reads_utf_16() {
    let text = one("", "", "token: abc");
    let little: Vec<u8> = [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect();
    for bytes in [little, big] {
        let config = load_with(&[&bytes], &Kubeconfig::default()).unwrap().unwrap();
        assert_eq!(settings(&config), "server=https://host:6443/ token=abc");
    }
}

#[test]
fn names_what_is_wrong_and_shows_no_value() {
    let exec = |fields: &str| {
        one("", "", &format!("exec: {{command: aws, apiVersion: client.authentication.k8s.io/v1, {fields}}}"))
    };
    for (text, expected) in [
        ("current-context: one".to_owned(), "context \"one\" does not exist"),
        (one("", "", "").replace("cluster: c,", "cluster: x,"), "cluster \"x\" does not exist"),
        (one("", "", "").replace("server: \"https://host:6443\"", ""), "cluster \"c\" has no server"),
        (
            one("", "", "").replace("https://host:6443", "ftp://s3cret"),
            "cluster \"c\": server is not the URL of a server",
        ),
        (
            one("", "", "").replace("https://host:6443", "https:// s3cret"),
            "cluster \"c\": server is not the URL of a server",
        ),
        (
            one(", insecure-skip-tls-verify: true, certificate-authority: /ca", "", ""),
            "cluster \"c\": insecure-skip-tls-verify and a certificate authority exclude each other",
        ),
        (
            one(", proxy-url: 'ftp://s3cret'", "", ""),
            "cluster \"c\": proxy-url is not the URL of an http, https or socks5 proxy",
        ),
        (
            one(", proxy-url: 's3cret:80'", "", ""),
            "cluster \"c\": proxy-url is not the URL of an http, https or socks5 proxy",
        ),
        (
            one(", certificate-authority-data: s3cret!", "", ""),
            "cluster \"c\": certificate-authority-data is not base64",
        ),
        (
            one(", certificate-authority-data: czNjcmV0", "", ""),
            "cluster \"c\": certificate-authority-data is not a certificate as PEM in base64",
        ),
        (
            one(", insecure-skip-tls-verify: 'true'", "", ""),
            "cluster \"c\": insecure-skip-tls-verify is not true or false",
        ),
        (one("", "", "token: 123"), "user \"u\": token is not a string"),
        (
            one("", "", "token: s3cret, username: me"),
            "user \"u\" has both a token and a password: only one of them is allowed",
        ),
        (one("", "", "client-certificate: /c"), "user \"u\" has a client certificate and no client key"),
        (one("", "", "as-groups: [a]"), "user \"u\" impersonates a UID, groups or extra fields without a user (as)"),
        (one("", "", "as-groups: [1]"), "user \"u\": as-groups is not a list of strings"),
        (one("", "", "exec: {apiVersion: v}"), "user \"u\": exec has no command"),
        (one("", "", "exec: {command: aws}"), "user \"u\": exec has no apiVersion"),
        (
            exec("interactiveMode: Sometimes"),
            "user \"u\": exec: interactiveMode is \"Sometimes\", not Never, IfAvailable or Always",
        ),
        (
            one("", "", "client-certificate-data: s3cret!, client-key: /k"),
            "user \"u\": client-certificate-data is not base64",
        ),
        (
            one("", "", "client-certificate: /c, client-key-data: gA=="),
            "user \"u\": client-key-data is not PEM in base64",
        ),
        (exec("env: [{value: s3cret}]"), "user \"u\": exec: env is not a list of names and values"),
        (
            one("", "", "").replace("users: [", "users: [{name: u, user: {token: s3cret}}, "),
            "two of the users have the name \"u\"",
        ),
        (one("", "", "").replace("users: [", "users: {").replace("}}]\n", "}}}\n"), ""),
        ("users: {}".to_owned(), "/d/0: users is not a list"),
        ("users: [s3cret]".to_owned(), "/d/0: an entry of users is not a mapping"),
        ("kind: Pod".to_owned(), "/d/0: not a kubeconfig: kind is \"Pod\", not \"Config\""),
        ("apiVersion: v2".to_owned(), "/d/0: not a kubeconfig: apiVersion is \"v2\", not \"v1\""),
        ("s3cret".to_owned(), "/d/0: not a kubeconfig: not a mapping"),
        ("a: 1\n  token: s3cret\n b: [".to_owned(), ""),
    ] {
        let error = load_with(&[text.as_bytes()], &Kubeconfig::default()).map(|_| ()).expect_err(&text);
        if expected.is_empty() {
            assert!(error.starts_with("/d/0: "), "{text}: {error}");
        } else {
            assert_eq!(error, expected, "{text}");
        }
        assert!(!error.contains("s3cret"), "{text}: {error}");
    }
    let error = load_with(&[b"\xff\xff"], &Kubeconfig::default()).map(|_| ()).unwrap_err();
    assert_eq!(error, "/d/0: not a kubeconfig: not UTF-8 text");
}

#[test]
fn is_empty_without_a_server() {
    for text in ["", "---\n", "# nothing\n", "{}", "clusters: null\nusers: null\ncontexts: null\ncurrent-context: ''\n"]
    {
        assert!(load_with(&[text.as_bytes()], &Kubeconfig::default()).unwrap().is_none(), "{text}");
    }
    assert!(load_with(&[], &Kubeconfig::default()).unwrap().is_none());
    let options = Kubeconfig { server: Some("https://other".to_owned()), ..Kubeconfig::default() };
    assert_eq!(settings(&load_with(&[], &options).unwrap().unwrap()), "server=https://other/");
}

#[test]
fn the_first_file_wins() {
    let second = one(", tls-server-name: second", "", "token: second")
        .replace("}]\n", "}, {name: d, cluster: {server: 'https://d'}}]\n");
    for (first, expected) in [
        ("", "server=https://host:6443/ tls-name=second token=second"),
        (
            "current-context: ''\nclusters: null\nusers: null\n",
            "server=https://host:6443/ tls-name=second token=second",
        ),
        (
            "users: [{name: u, user: {tokenFile: /first}}]",
            "server=https://host:6443/ tls-name=second token-file=/first",
        ),
        ("clusters: [{name: c, cluster: {server: 'https://first'}}]", "server=https://first/ token=second"),
        ("contexts: [{name: two, context: {cluster: d}}]\ncurrent-context: two", "server=https://d/"),
    ] {
        let config = load_with(&[first.as_bytes(), second.as_bytes()], &Kubeconfig::default()).unwrap().unwrap();
        assert_eq!(settings(&config), expected, "{first}");
    }
}

#[test]
fn paths_are_relative_to_their_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    for (user, expected) in [
        (
            "client-certificate: ../c, client-key: /k, tokenFile: ./t",
            format!("token-file={at}/./t cert={at}/../c key=/k"),
        ),
        ("exec: {apiVersion: v, command: bin/aws}", format!("exec={at}/bin/aws")),
        ("exec: {apiVersion: v, command: /aws}", "exec=/aws".to_owned()),
        ("exec: {apiVersion: v, command: aws}", "exec=aws".to_owned()),
        // As in client-go, a plugin does not run beside other credentials.
        ("client-certificate: /c, client-key: /k, exec: {apiVersion: v, command: aws}", "cert=/c key=/k".to_owned()),
        ("username: me, exec: {apiVersion: v, command: aws}", "user=me password=".to_owned()),
    ] {
        let text = one(", certificate-authority: ca.crt", "", user);
        let config = load_files(folder.path(), &[text.as_bytes()], &Kubeconfig::default()).unwrap().unwrap();
        assert_eq!(settings(&config), format!("server=https://host:6443/ ca-file={at}/ca.crt {expected}"));
    }
}

#[test]
fn options_choose_and_missing_choices_are_errors() {
    let text = one(", tls-server-name: name", ", namespace: web", "token: abc")
        .replace("users: [", "users: [{name: v, user: {token: of-v}}, ")
        .replace("contexts: [", "contexts: [{name: two, context: {cluster: c, user: v}}, ")
        .replace("clusters: [", "clusters: [{name: d, cluster: {server: 'https://d'}}, ");
    let options = |context: &str, cluster: &str, user: &str, server: &str| {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Kubeconfig {
            file: None,
            context: given(context),
            cluster: given(cluster),
            user: given(user),
            server: given(server),
        }
    };
    for (options, expected) in [
        (options("", "", "", ""), Ok("server=https://host:6443/ namespace=web tls-name=name token=abc")),
        (options("two", "", "", ""), Ok("server=https://host:6443/ tls-name=name token=of-v")),
        (options("", "d", "", ""), Ok("server=https://d/ namespace=web token=abc")),
        (options("", "", "v", ""), Ok("server=https://host:6443/ namespace=web tls-name=name token=of-v")),
        // The name belongs to the other server.
        (options("", "", "", "https://e"), Ok("server=https://e/ namespace=web token=abc")),
        (options("", "", "", "http://e"), Ok("server=http://e/ namespace=web")),
        (options("x", "", "", ""), Err("context \"x\" does not exist")),
        (options("", "x", "", ""), Err("cluster \"x\" does not exist")),
        (options("", "", "x", ""), Err("user \"x\" does not exist")),
    ] {
        let loaded = load_with(&[text.as_bytes()], &options).map(|config| settings(&config.unwrap()));
        assert_eq!(loaded, expected.map(str::to_owned).map_err(str::to_owned), "{options:?}");
    }
}

/// client-go's `ClientConfig` reads credentials only for TLS, and impersonation always.
#[test]
fn plain_http_gets_no_credentials() {
    for user in [
        "token: s3cret",
        "tokenFile: /t",
        "username: me, password: s3cret",
        "client-certificate: /c, client-key: /k",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}",
        "auth-provider: {name: oidc, config: {id-token: s3cret}}",
    ] {
        let text = one("", "", &format!("{user}, as: jane")).replace("https://", "http://");
        assert_eq!(settings(&load(&text)), "server=http://host:6443/ as=jane", "{user}");
    }
}

#[test]
fn a_plugin_gets_information_about_the_cluster() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ca.crt"), "PEM").unwrap();
    let text = one(
        ", certificate-authority: ca.crt, tls-server-name: n, extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: a}}]",
        "",
        "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws, args: [a, ''], provideClusterInfo: true, \
         interactiveMode: Never, env: [{name: A, value: b}, {name: EMPTY}], installHint: brew}",
    );
    let config = load_files(folder.path(), &[text.as_bytes()], &Kubeconfig::default()).unwrap().unwrap();
    let Login::Exec(exec) = config.login else { panic!("no plugin") };
    let expected = serde_json::json!({
        "server": "https://host:6443", "certificate-authority-data": "UEVN", "tls-server-name": "n", "config": {"audience": "a"},
    });
    assert_eq!(exec.cluster, Some(expected));
    assert_eq!((exec.args, exec.install_hint), (vec!["a".to_owned(), String::new()], Some("brew".to_owned())));
    assert_eq!(exec.interactive_mode, InteractiveMode::Never);
    let variables: Vec<_> = exec.env.into_iter().map(|(name, value)| name + "=" + &value).collect();
    assert_eq!(variables, ["A=b", "EMPTY="]);
}

/// As client-go: `%HOMEDRIVE%%HOMEPATH%` comes before `%USERPROFILE%`, for kubeconfigs that exist.
#[test]
fn finds_the_file_of_a_user_of_windows() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).into_os_string();
    for name in ["home", "drive", "profile"] {
        fs::create_dir_all(folder.path().join(name).join(".kube")).unwrap();
    }
    let variable = |name: &str| match name {
        "HOME" => Some(at("home")),
        "HOMEDRIVE" => Some(folder.path().as_os_str().to_owned()),
        "HOMEPATH" => Some("/drive".into()),
        "USERPROFILE" => Some(at("profile")),
        _ => None,
    };
    assert_eq!(file_of_windows(variable), None);
    for name in ["profile", "drive", "home"] {
        let file = folder.path().join(name).join(".kube").join("config");
        fs::write(&file, "").unwrap();
        assert_eq!(file_of_windows(variable), Some(file));
    }
    assert_eq!(file_of_windows(|_| None), None);
    assert_eq!(file_of_windows(|name| variable(name).filter(|_| name == "HOMEDRIVE")), None);
}
