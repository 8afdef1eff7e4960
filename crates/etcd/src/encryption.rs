//! Values that the API server has encrypted, and the keys of its `EncryptionConfiguration`.
//!
//! An encrypted value begins with `k8s:enc:PROVIDER:v1:KEY:`; what follows depends on the provider
//! (`apiserver/pkg/storage/value/encrypt` of Kubernetes). AES comes from aws-lc. Secretbox is `XSalsa20` and Poly1305,
//! put together as `NaCl` does.

use std::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{self, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use base64::prelude::{BASE64_STANDARD, Engine};
use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit;
use salsa20::XSalsa20;
use salsa20::cipher::{KeyIvInit, StreamCipher};
use serde::Deserialize;

use crate::stored_value::StoredValue;

/// The keys of an API server, from the file of its flag `--encryption-provider-config`.
///
/// Its `Debug` prints no secrets.
#[derive(Default)]
pub struct EncryptionConfig {
    keys: Vec<ProviderKey>,
}

/// A key, and the beginning of the values that are encrypted with it.
struct ProviderKey {
    provider: Provider,
    name: String,
    secret: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    AesCbc,
    AesGcm,
    Secretbox,
}

/// Why a value was not decrypted. It quotes no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecryptError {
    /// The value is encrypted by a plugin, whose key is outside of the API server.
    #[error("it is encrypted by the kms plugin {0:?}, which has the key: it can only be read through the API server")]
    Kms(String),
    /// The configuration has no such key.
    #[error("the encryption configuration has no key {name:?} of {provider}")]
    NoKey {
        /// The provider of the value.
        provider: String,
        /// The name of the value's key.
        name: String,
    },
    /// The key does not fit, or the value was changed.
    #[error("key {name:?} of {provider} does not decrypt it: the secret is another one, or the value was changed")]
    Rejected {
        /// The provider of the value.
        provider: String,
        /// The name of the value's key.
        name: String,
    },
}

/// Why an `EncryptionConfiguration` cannot be used. It quotes no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text has another form.
    #[error("not an EncryptionConfiguration of apiserver.config.k8s.io/v1")]
    Form,
    /// A secret is not base64, or has a length that its provider does not take.
    #[error("the secret of key {0:?} is not 16, 24 or 32 bytes in base64, with secretbox 32")]
    Secret(String),
}

#[derive(Deserialize)]
struct Document {
    kind: String,
    resources: Vec<Resources>,
}

#[derive(Deserialize)]
struct Resources {
    providers: Vec<Providers>,
}

#[derive(Deserialize)]
struct Providers {
    aescbc: Option<Keys>,
    aesgcm: Option<Keys>,
    secretbox: Option<Keys>,
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    name: String,
    secret: String,
}

impl EncryptionConfig {
    /// Reads an `EncryptionConfiguration` in JSON; the file is usually YAML, which the caller converts. The resources
    /// for which a key is meant are ignored, because each value names its key.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the text is something else, or a secret is malformed.
    pub fn from_json(json: &[u8]) -> Result<Self, ConfigError> {
        let document: Document = serde_json::from_slice(json).map_err(|_| ConfigError::Form)?;
        if document.kind != "EncryptionConfiguration" {
            return Err(ConfigError::Form);
        }
        let mut config = Self::default();
        for providers in document.resources.into_iter().flat_map(|resources| resources.providers) {
            let Providers { aescbc, aesgcm, secretbox } = providers;
            let each =
                [(Provider::AesCbc, aescbc), (Provider::AesGcm, aesgcm), (Provider::Secretbox, secretbox)].into_iter();
            for (provider, keys) in each.filter_map(|(provider, keys)| Some((provider, keys?))) {
                for Key { name, secret } in keys.keys {
                    let secret =
                        BASE64_STANDARD.decode(secret.trim()).ok().filter(|secret| provider.takes(secret.len()));
                    let secret = secret.ok_or_else(|| ConfigError::Secret(name.clone()))?;
                    config.keys.push(ProviderKey { provider, name, secret });
                }
            }
        }
        Ok(config)
    }

    /// Decrypts a value of this key of etcd; `None` if it is not encrypted. With `aesgcm` and `secretbox` a changed
    /// value is an error, and with `aesgcm` also a value that belongs to another key of etcd. `aescbc` authenticates
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`DecryptError`].
    pub fn decrypt(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, DecryptError> {
        let StoredValue::Encrypted { provider, key_name } = StoredValue::of(value) else { return Ok(None) };
        let error_parts = || (provider.to_owned(), key_name.to_owned());
        if provider == "kms" {
            return Err(DecryptError::Kms(key_name.to_owned()));
        }
        let text = value.splitn(6, |byte| *byte == b':').nth(5).unwrap_or_default();
        let mut fitting =
            self.keys.iter().filter(|own| own.provider.name() == provider && own.name == key_name).peekable();
        if fitting.peek().is_none() {
            let (provider, name) = error_parts();
            return Err(DecryptError::NoKey { provider, name });
        }
        // Several resources may have keys of one name. With aescbc, a wrong key may go unnoticed until here.
        let opened =
            fitting.find_map(|own| own.open(key, text).filter(|value| StoredValue::of(value) != StoredValue::Other));
        opened.map(Some).ok_or_else(|| {
            let (provider, name) = error_parts();
            DecryptError::Rejected { provider, name }
        })
    }
}

impl fmt::Debug for EncryptionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| (key.provider, &key.name))).finish()
    }
}

impl Provider {
    fn name(self) -> &'static str {
        match self {
            Self::AesCbc => "aescbc",
            Self::AesGcm => "aesgcm",
            Self::Secretbox => "secretbox",
        }
    }

    fn takes(self, len: usize) -> bool {
        if self == Self::Secretbox { len == 32 } else { [16, 24, 32].contains(&len) }
    }
}

impl ProviderKey {
    fn open(&self, key: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        match self.provider {
            Provider::AesCbc => open_cbc(&self.secret, text),
            Provider::AesGcm => open_gcm(&self.secret, key, text),
            Provider::Secretbox => open_secretbox(&self.secret, text),
        }
    }
}

/// 16 bytes of initialization vector, then blocks with the padding of PKCS #7.
fn open_cbc(secret: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match secret.len() {
        16 => &cipher::AES_128,
        24 => &cipher::AES_192,
        _ => &cipher::AES_256,
    };
    let (vector, text) = text.split_first_chunk::<16>()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(UnboundCipherKey::new(algorithm, secret).ok()?).ok()?;
    let mut text = text.to_vec();
    let opened = key.decrypt(&mut text, DecryptionContext::Iv128(FixedLength::from(vector))).ok()?;
    Some(opened.to_vec())
}

/// 12 bytes of nonce, then the text and its tag, which also covers the key of etcd.
fn open_gcm(secret: &[u8], key: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match secret.len() {
        16 => &aead::AES_128_GCM,
        24 => &aead::AES_192_GCM,
        _ => &aead::AES_256_GCM,
    };
    let (nonce, text) = text.split_first_chunk::<12>()?;
    let own = LessSafeKey::new(UnboundKey::new(algorithm, secret).ok()?);
    let mut text = text.to_vec();
    let opened = own.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(key), &mut text).ok()?;
    let len = opened.len();
    text.truncate(len);
    Some(text)
}

/// 24 bytes of nonce, the tag, then the text. The first 32 bytes of the key stream are the key of Poly1305.
fn open_secretbox(secret: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let (nonce, text) = text.split_first_chunk::<24>()?;
    let (tag, text) = text.split_first_chunk::<16>()?;
    let mut stream = XSalsa20::new_from_slices(secret, nonce).ok()?;
    let mut one_time = [0; 32];
    stream.apply_keystream(&mut one_time);
    let expected = Poly1305::new(&one_time.into()).compute_unpadded(text);
    aws_lc_rs::constant_time::verify_slices_are_equal(&expected, tag).ok()?;
    let mut text = text.to_vec();
    stream.apply_keystream(&mut text);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(providers: &str) -> Result<EncryptionConfig, ConfigError> {
        let json = format!(
            r#"{{"kind":"EncryptionConfiguration","resources":[{{"providers":[{providers},{{"identity":{{}}}}]}}]}}"#
        );
        EncryptionConfig::from_json(json.as_bytes())
    }

    #[test]
    fn opens_secretbox_as_nacl() {
        // The first test of NaCl's `secretbox` (tests/secretbox.c).
        let secret = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
        let nonce = hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
        let start =
            hex("f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a");
        // A shorter text has another tag, so only the key stream is compared here.
        let mut stream = XSalsa20::new_from_slices(&secret, nonce.as_slice()).unwrap();
        let mut bytes = vec![0; 32 + 32];
        stream.apply_keystream(&mut bytes);
        let text = hex("be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffc");
        let sealed: Vec<_> = bytes[32..].iter().zip(&text).map(|(key, byte)| key ^ byte).collect();
        assert_eq!(sealed, start[16..]);
        let tag = Poly1305::new_from_slice(&bytes[..32]).unwrap().compute_unpadded(&sealed);
        let mut whole = [nonce, tag.to_vec(), sealed].concat();
        assert_eq!(open_secretbox(&secret, &whole), Some(text));
        whole[50] ^= 1;
        assert_eq!(open_secretbox(&secret, &whole), None);
        assert_eq!(open_secretbox(&secret, &whole[..30]), None);
    }

    #[test]
    fn names_the_key_that_is_missing_or_does_not_fit() {
        let own =
            config(r#"{"aescbc":{"keys":[{"name":"a","secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}]}},{"kms":{"name":"x"}}"#)
                .unwrap();
        assert_eq!(format!("{own:?}"), r#"[(AesCbc, "a")]"#);
        assert_eq!(own.decrypt(b"/k", b"k8s\0"), Ok(None));
        for (value, expected) in [
            ("k8s:enc:aescbc:v1:b:text", "the encryption configuration has no key \"b\" of aescbc"),
            (
                "k8s:enc:aescbc:v1:a:text",
                "key \"a\" of aescbc does not decrypt it: the secret is another one, or the value was changed",
            ),
            (
                "k8s:enc:kms:v2:vault:text",
                "it is encrypted by the kms plugin \"vault\", which has the key: it can only be read through the API server",
            ),
        ] {
            assert_eq!(own.decrypt(b"/k", value.as_bytes()).unwrap_err().to_string(), expected);
        }
        for (bad, error) in [
            (r#"{"aescbc":{"keys":[{"name":"a","secret":"MDEy"}]}}"#, ConfigError::Secret("a".to_owned())),
            (
                r#"{"secretbox":{"keys":[{"name":"a","secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}]}}"#,
                ConfigError::Secret("a".to_owned()),
            ),
            (r#"{"aesgcm":{"keys":1}}"#, ConfigError::Form),
        ] {
            assert_eq!(config(bad).unwrap_err(), error, "{bad}");
        }
        assert_eq!(EncryptionConfig::from_json(b"{}").unwrap_err(), ConfigError::Form);
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }
}
