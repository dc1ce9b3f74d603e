//! The page at `/`: the files of `web/`, which the program contains. The document names the hash of all files, and every other
//! file is served below that hash, so that a browser may keep it for ever. The files say nothing about the server or its
//! users; the page asks the API with the caller's key.

use std::{fmt::Write, sync::LazyLock};

use axum::{
    extract::Path,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};

use crate::error::{ApiError, Code};

/// The files of the page, each with its path below `web/`, sorted.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));
/// The document, in which [`BASE`] stands for the folder of the other files.
const DOCUMENT: &str = "index.html";
/// The placeholder in the document.
const BASE: &str = "{{base}}";
/// The length of the hash in addresses, in hexadecimal digits.
const HASH_DIGITS: usize = 16;

/// What the page may load: only its own files, and no script or style within the document, so that a text that is taken for
/// markup by mistake can do nothing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; \
                      connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";
/// The permission to keep a file for ever: its address changes with its content.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// The permission to keep the document only if it is unchanged.
const ASK_AGAIN: &str = "no-cache";

/// The hash of all files.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = Sha256::new();
    for (name, bytes) in FILES {
        hasher.update(name.len().to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(bytes.len().to_le_bytes());
        hasher.update(bytes);
    }
    let mut hash = String::with_capacity(64);
    for byte in hasher.finalize() {
        let _ = write!(hash, "{byte:02x}");
    }
    hash.truncate(HASH_DIGITS);
    hash
});

/// The document with the addresses of the other files.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let document = find(DOCUMENT).map(String::from_utf8_lossy).unwrap_or_default();
    document.replace(BASE, &format!("/page/{}", *HASH))
});

/// The document.
pub async fn page(headers: HeaderMap) -> Response {
    file("text/html; charset=utf-8", ASK_AGAIN, PAGE.as_bytes(), &headers)
}

/// A file of the page. An address with another hash belongs to another version of the program.
pub async fn asset(Path((hash, path)): Path<(String, String)>, headers: HeaderMap) -> Response {
    match find(&path).filter(|_| hash == *HASH && path != DOCUMENT) {
        Some(bytes) => file(kind(&path), FOR_EVER, bytes, &headers),
        None => {
            let why = "this version of the page has no such file; reload the page at `/`";
            ApiError::new(Code::NotFound, why).into_response()
        }
    }
}

fn find(path: &str) -> Option<&'static [u8]> {
    FILES.binary_search_by(|(name, _)| (*name).cmp(path)).ok().map(|at| FILES[at].1)
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, kind)| kind) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("woff2") => "font/woff2",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}

/// The reply with a file, or without it if the browser has it already. All files of one version share their entity tag.
fn file(kind: &'static str, keep: &'static str, bytes: &'static [u8], asked: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", *HASH);
    let is_known = asked.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok()).is_some_and(|known| {
        known.split(',').any(|one| matches!(one.trim(), "*") || one.trim().trim_start_matches("W/") == tag)
    });
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], bytes).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
        let is_kind = move |name: &str| name.rsplit_once('.').is_some_and(|(_, k)| k == kind);
        FILES
            .iter()
            .filter(move |(name, _)| is_kind(name))
            .map(|(name, bytes)| (*name, std::str::from_utf8(bytes).unwrap()))
    }

    #[test]
    fn page_files_are_sorted_and_include_document_and_program() {
        assert!(FILES.is_sorted_by(|(one, _), (other, _)| one < other));
        for name in [DOCUMENT, "app.js", "pages/registry.js", "style/tokens.css", "font/inter.woff2"] {
            assert!(find(name).is_some(), "{name}");
        }
        assert!(FILES.iter().all(|(name, _)| *name == DOCUMENT || kind(name) != "application/octet-stream"));
        assert!(!PAGE.contains(BASE), "every placeholder is filled");
    }

    /// Text of models and of other people must stay text. The policy stops inline code; this stops markup.
    #[test]
    fn page_programs_make_elements_without_parsing_markup() {
        for (name, text) in texts("js") {
            for way in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "DOMParser",
                "createContextualFragment",
                "eval(",
                "new Function",
                "srcdoc",
            ] {
                assert!(!text.contains(way), "{name} uses {way}: build elements with `h` of lib/dom.js");
            }
        }
    }

    #[test]
    fn page_loads_nothing_from_other_hosts_and_has_no_inline_code() {
        let document = std::str::from_utf8(find(DOCUMENT).unwrap()).unwrap();
        assert!(!document.contains("<style") && !document.contains("style=") && !document.contains("onload"));
        assert!(
            document
                .split("<script")
                .skip(1)
                .all(|rest| rest.contains("src=\"{{base}}/") && rest.contains("></script>"))
        );
        for (name, text) in texts("css").chain(texts("js")).chain([(DOCUMENT, document)]) {
            for start in
                ["url(\"http", "url(http", "from \"http", "import(\"http", "src=\"http", "href=\"http", "@import"]
            {
                assert!(!text.contains(start), "{name} has {start}");
            }
        }
    }

    #[test]
    fn page_is_small_enough_for_a_quick_start() {
        let bytes = |kind: &str| texts(kind).map(|(_, text)| text.len()).sum::<usize>();
        // About a quarter of this travels if a proxy compresses it.
        assert!(bytes("js") < 600_000, "{} bytes of programs", bytes("js"));
    }
}
