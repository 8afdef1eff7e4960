//! The fields of a certificate that rustls does not expose (RFC 5280).
//!
//! Alone they decide nothing: webpki builds and verifies the chain of a server, and [`Authorities`] only refuses more
//! than webpki does. The exception is [`Certificate::without_ca_flag`], whose doc says why that is safe.
//!
//! [`Authorities`]: super::Authorities

use std::ops::Range;

use jiff::Timestamp;
use rustls::pki_types::UnixTime;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// The content of the object identifiers.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const ANY_PURPOSE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// The bit `keyCertSign` in the first byte of a key usage.
const CERT_SIGN: u8 = 0x04;

/// The size in bits of the smallest RSA keys that ring and aws-lc-rs verify.
pub(super) const MIN_RSA_BITS: usize = 2048;

pub(super) struct Certificate<'a> {
    der: &'a [u8],
    signed: Range<usize>,
    is_v3: bool,
    serial: &'a [u8],
    pub(super) issuer: &'a [u8],
    pub(super) subject: &'a [u8],
    validity: Range<usize>,
    /// The key with its algorithm.
    pub(super) public_key: &'a [u8],
    /// The elements of the list of extensions.
    extensions: Range<usize>,
}

impl<'a> Certificate<'a> {
    /// Finds the fields; `None` if the bytes are not a certificate.
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let outer = Der::of(der).read(SEQUENCE)?;
        let signed = Der::within(der, &outer.content).read(SEQUENCE)?;
        let mut fields = Der::within(der, &signed.content);
        let version = match fields.peek() {
            Some(VERSION) => Der::within(der, &fields.read(VERSION)?.content).read(INTEGER)?.bytes(der)?,
            _ => &[0],
        };
        let serial = fields.read(INTEGER)?.bytes(der)?;
        fields.read(SEQUENCE)?;
        let issuer = fields.read(SEQUENCE)?.bytes(der)?;
        let validity = fields.read(SEQUENCE)?.content;
        let subject = fields.read(SEQUENCE)?.bytes(der)?;
        let public_key = der.get(fields.read(SEQUENCE)?.whole)?;
        let mut extensions = 0..0;
        while let Some(tag) = fields.peek() {
            let element = fields.read(tag)?;
            if tag == EXTENSIONS {
                extensions = Der::within(der, &element.content).read(SEQUENCE)?.content;
            }
        }
        let is_v3 = version == [2];
        Some(Self { der, signed: signed.whole, is_v3, serial, issuer, subject, validity, public_key, extensions })
    }

    pub(super) fn signed_bytes(&self) -> Option<&'a [u8]> {
        self.der.get(self.signed.clone())
    }

    /// Returns true for a serial number below zero, which Go refuses.
    pub(super) fn has_negative_serial(&self) -> bool {
        self.serial.first().is_some_and(|first| *first >= 0x80)
    }

    /// Returns the size of the key if it is an RSA key.
    pub(super) fn rsa_bits(&self) -> Option<usize> {
        let mut key = Der::within(self.public_key, &Der::of(self.public_key).read(SEQUENCE)?.content);
        let algorithm = key.read(SEQUENCE)?.content;
        if Der::within(self.public_key, &algorithm).read(OBJECT_IDENTIFIER)?.bytes(self.public_key)? != RSA {
            return None;
        }
        // The first byte of a bit string counts the bits that the last byte does not use.
        let (0, key) = key.read(BIT_STRING)?.bytes(self.public_key)?.split_first().map(|(bits, key)| (*bits, key))?
        else {
            return None;
        };
        let modulus = Der::within(key, &Der::of(key).read(SEQUENCE)?.content).read(INTEGER)?.bytes(key)?;
        let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
        let first = modulus.get(zeros)?;
        Some(8 * (modulus.len() - zeros) - first.leading_zeros() as usize)
    }

    /// Returns why Go's `x509.Certificate.Verify` would not accept this certificate as an issuer; `None` if it would.
    ///
    /// For a trusted certificate, webpki checks none of this, and it never checks a key usage.
    pub(super) fn why_no_issuer(&self, now: UnixTime) -> Option<&'static str> {
        let Some((not_before, not_after)) = self.dates() else { return Some("has malformed dates") };
        let now = i64::try_from(now.as_secs()).ok().and_then(|now| Timestamp::from_second(now).ok());
        let now = now.unwrap_or(Timestamp::MAX).strftime("%Y%m%d%H%M%SZ").to_string();
        let basic = self.extension(BASIC_CONSTRAINTS);
        match (&basic, self.is_ca()) {
            _ if self.has_negative_serial() => return Some("has a negative serial number"),
            _ if now < not_before => return Some("is not valid yet"),
            _ if now > not_after => return Some("has expired"),
            (Some(_), false) => return Some("is not a CA"),
            (None, _) if self.is_v3 => return Some("is not a CA: it has no basic constraints"),
            _ => {}
        }
        if let Some(usage) = self.extension(KEY_USAGE)
            && self.key_usage(&usage).is_none_or(|usage| usage & CERT_SIGN == 0)
        {
            return Some("has a key that must not sign certificates");
        }
        match self.extension(EXTENDED_KEY_USAGE) {
            Some(purposes) if !self.may_issue_servers(&purposes) => Some("must not issue certificates of servers"),
            _ => None,
        }
    }

    /// Returns true if the path length constraint is 0, so that the certificate may sign only certificates of servers.
    pub(super) fn signs_only_leaves(&self) -> bool {
        let Some(mut fields) = self.basic_constraints() else { return false };
        if fields.peek() == Some(BOOLEAN) {
            fields.read(BOOLEAN);
        }
        fields.read(INTEGER).and_then(|length| length.bytes(self.der)) == Some(&[0])
    }

    /// Returns the certificate with `cA` in its basic constraints turned to false; `None` if it is not a CA.
    ///
    /// webpki then verifies it as the certificate of a server. The signature must be verified over the bytes of the
    /// original, which differs only in this byte. An issuer that signed the certificate of a CA therefore has the same
    /// server accepted as in Go, and nothing else.
    pub(super) fn without_ca_flag(&self) -> Option<Vec<u8>> {
        let flag = self.basic_constraints()?.read(BOOLEAN)?.content;
        let mut copy = self.der.to_vec();
        match copy.get_mut(flag)? {
            [flag @ 0xff] => *flag = 0,
            _ => return None,
        }
        Some(copy)
    }

    fn is_ca(&self) -> bool {
        let flag = self.basic_constraints().and_then(|mut fields| fields.read(BOOLEAN)?.bytes(self.der));
        flag == Some(&[0xff])
    }

    fn basic_constraints(&self) -> Option<Der<'a>> {
        let value = self.extension(BASIC_CONSTRAINTS)?;
        Some(Der::within(self.der, &Der::within(self.der, &value).read(SEQUENCE)?.content))
    }

    fn key_usage(&self, value: &Range<usize>) -> Option<u8> {
        Der::within(self.der, value).read(BIT_STRING)?.bytes(self.der)?.get(1).copied()
    }

    fn may_issue_servers(&self, value: &Range<usize>) -> bool {
        let Some(list) = Der::within(self.der, value).read(SEQUENCE) else { return false };
        let mut purposes = Der::within(self.der, &list.content);
        std::iter::from_fn(|| purposes.read(OBJECT_IDENTIFIER))
            .any(|purpose| matches!(purpose.bytes(self.der), Some(ANY_PURPOSE | SERVER_AUTH)))
    }

    fn extension(&self, identifier: &[u8]) -> Option<Range<usize>> {
        let mut extensions = Der::within(self.der, &self.extensions);
        while let Some(extension) = extensions.read(SEQUENCE) {
            let mut fields = Der::within(self.der, &extension.content);
            let found = fields.read(OBJECT_IDENTIFIER)?.bytes(self.der)?;
            if fields.peek() == Some(BOOLEAN) {
                fields.read(BOOLEAN)?;
            }
            let value = fields.read(OCTET_STRING)?;
            if found == identifier {
                return Some(value.content);
            }
        }
        None
    }

    /// Returns the first and the last second, as `YYYYMMDDhhmmssZ`.
    fn dates(&self) -> Option<(String, String)> {
        let mut fields = Der::within(self.der, &self.validity);
        let mut date = || {
            let tag = fields.peek()?;
            let text = str::from_utf8(fields.read(tag)?.bytes(self.der)?).ok()?;
            let date = match tag {
                UTC_TIME if text < "50" => format!("20{text}"),
                UTC_TIME => format!("19{text}"),
                _ => text.to_owned(),
            };
            let digits = date.strip_suffix('Z').filter(|digits| digits.len() == 14)?;
            digits.bytes().all(|digit| digit.is_ascii_digit()).then_some(date)
        };
        Some((date()?, date()?))
    }
}

struct Der<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

struct Element {
    whole: Range<usize>,
    content: Range<usize>,
}

impl Element {
    fn bytes<'a>(&self, der: &'a [u8]) -> Option<&'a [u8]> {
        der.get(self.content.clone())
    }
}

impl<'a> Der<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, end: bytes.len() }
    }

    fn within(bytes: &'a [u8], part: &Range<usize>) -> Self {
        Self { bytes, at: part.start, end: part.end }
    }

    fn peek(&self) -> Option<u8> {
        (self.at < self.end).then(|| self.bytes.get(self.at).copied()).flatten()
    }

    fn read(&mut self, tag: u8) -> Option<Element> {
        if self.peek()? != tag {
            return None;
        }
        let first = usize::from(*self.bytes.get(self.at + 1)?);
        let more = match first {
            0..=0x7f => 0,
            0x81..=0x83 => first - 0x80,
            _ => return None,
        };
        let start = self.at + 2 + more;
        let length = match more {
            0 => first,
            _ => self.bytes.get(self.at + 2..start)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
        };
        let end = start.checked_add(length).filter(|end| *end <= self.end)?;
        let element = Element { whole: self.at..end, content: start..end };
        self.at = end;
        Some(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_no_certificate() {
        for bytes in [&b""[..], b"0", b"0\x80", b"0\x84\0\0\0\0", b"0\x81", b"0\x05\x30\x03\x02\x01\x05", &[0x30; 64]] {
            assert!(Certificate::parse(bytes).is_none(), "{bytes:?}");
        }
    }
}
