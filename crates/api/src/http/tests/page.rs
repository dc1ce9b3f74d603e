//! The page: its document, its files, their headers, and that it says nothing about the server.

use reqwest::{Method, StatusCode};

use super::world::{Server, echo};
use crate::auth::KeyScope;

async fn document(server: &Server) -> String {
    server.request(Method::GET, "/").send().await.unwrap().text().await.unwrap()
}

/// The addresses of files in the document.
fn addresses(document: &str) -> Vec<&str> {
    document.split('"').filter(|text| text.starts_with("/page/")).collect()
}

#[tokio::test]
async fn page_is_the_same_for_every_caller() {
    let server = Server::start(echo()).await;
    let local = document(&server).await;
    assert!(local.contains("<div id=\"app\">"), "{local}");
    let proxied = server.request(Method::GET, "/").header("x-forwarded-for", "192.0.2.1");
    assert_eq!(proxied.send().await.unwrap().text().await.unwrap(), local, "through a proxy");
    server.key("ann", &[KeyScope::Chat]).await;
    assert_eq!(document(&server).await, local, "once there are keys");
    for secret in [crate::api::VERSION, "a script in a test", "main\""] {
        assert!(!local.contains(secret), "{secret}: an unauthenticated caller learns nothing");
    }
}

#[tokio::test]
async fn page_files_are_served_under_a_strict_policy_and_kept_for_ever() {
    let server = Server::start(echo()).await;
    let document = document(&server).await;
    let addresses = addresses(&document);
    assert!(addresses.len() > 5, "{document}");
    for address in addresses {
        let response = server.request(Method::GET, address).send().await.unwrap();
        assert_eq!(response.status(), 200, "{address}");
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        let kind = match address.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "woff2" => "font/woff2",
            other => panic!("{other}: {address}"),
        };
        assert_eq!(header("content-type"), kind, "{address}");
        assert!(header("cache-control").contains("immutable"), "{address}");
        assert_eq!(header("x-content-type-options"), "nosniff");
    }
    let page = server.request(Method::GET, "/").send().await.unwrap();
    let header = |name: &str| page.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        (header("content-type").as_str(), header("cache-control").as_str()),
        ("text/html; charset=utf-8", "no-cache")
    );
    let policy = header("content-security-policy");
    for rule in
        ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
    {
        assert!(policy.contains(rule), "{rule}: {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    let known = server.request(Method::GET, "/").header("if-none-match", header("etag")).send().await.unwrap();
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn page_of_another_version_and_unknown_files_are_not_found() {
    let server = Server::start(echo()).await;
    let document = document(&server).await;
    let base = addresses(&document)[0].rsplit_once('/').unwrap().0.to_owned();
    let base = base.trim_end_matches("/style").to_owned();
    for path in [
        "/page/0123456789abcdef/app.js".to_owned(),
        format!("{base}/no.js"),
        format!("{base}/index.html"),
        format!("{base}/../app.js"),
        format!("{base}/font/OFL-inter.txt"),
    ] {
        let response = server.request(Method::GET, &path).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{path}");
    }
    let post = server.request(Method::POST, "/").send().await.unwrap();
    assert_eq!(post.status(), 405);
}
