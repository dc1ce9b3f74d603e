//! Resolves names for the client, and keeps only public addresses. The client connects to exactly the addresses that were checked
//! here, so a name that resolves to something else a moment later (DNS rebinding) gains nothing.

use std::{
    error::Error,
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use annie_core::ports::Fut;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{addresses::is_public, rules::not_public};

/// Looks up the addresses of names.
pub trait Lookup: Send + Sync {
    /// The addresses of a host name.
    fn addresses(&self, host: String) -> Fut<'static, io::Result<Vec<IpAddr>>>;
}

/// The operating system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn addresses(&self, host: String) -> Fut<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The refusal of a name, found again in the client's error.
#[derive(Debug)]
pub(super) struct NotPublic(String);

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&not_public(&self.0))
    }
}

impl Error for NotPublic {}

/// Resolves names to the addresses that a client may connect to.
pub(super) struct Checked {
    pub(super) lookup: Arc<dyn Lookup>,
    /// Only for the client of the addresses that the operator listed.
    pub(super) allows_private: bool,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let found = self.lookup.addresses(host.clone());
        Box::pin(checked(found, host, self.allows_private))
    }
}

async fn checked(
    found: Fut<'static, io::Result<Vec<IpAddr>>>,
    host: String,
    allows_private: bool,
) -> Result<Addrs, Box<dyn Error + Send + Sync>> {
    let mut addresses = found.await?;
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
    }
    addresses.retain(|address| allows_private || is_public(*address));
    if addresses.is_empty() {
        return Err(NotPublic(host).into());
    }
    // Port 0 stands for the port of the URL.
    Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Answers with these lists, one after the other.
    struct Alternating(Mutex<Vec<Vec<&'static str>>>);

    impl Lookup for Alternating {
        fn addresses(&self, _host: String) -> Fut<'static, io::Result<Vec<IpAddr>>> {
            let next = self.0.lock().unwrap().remove(0);
            let next: Vec<IpAddr> = next.into_iter().map(|text| text.parse().unwrap()).collect();
            Box::pin(std::future::ready(Ok(next)))
        }
    }

    async fn resolved(answers: Vec<Vec<&'static str>>, allows_private: bool) -> Vec<Result<Vec<String>, String>> {
        let count = answers.len();
        let checked = Checked { lookup: Arc::new(Alternating(Mutex::new(answers))), allows_private };
        let mut found = Vec::new();
        for _ in 0..count {
            let addresses = checked.resolve("example.org".parse().unwrap()).await;
            found.push(match addresses {
                Ok(addresses) => Ok(addresses.map(|address| address.to_string()).collect()),
                Err(why) => Err(format!("{} {why}", why.is::<NotPublic>())),
            });
        }
        found
    }

    #[tokio::test]
    async fn resolver_drops_addresses_that_are_not_public_from_every_answer() {
        let answers = vec![
            vec!["1.1.1.1"],
            vec!["127.0.0.1"],
            vec!["10.0.0.1", "1.1.1.1", "::ffff:127.0.0.1", "2606:4700::1"],
            vec![],
            vec!["::1", "169.254.169.254"],
        ];
        let refused = "true example.org is not a public address; only egress.allow_private allows it";
        assert_eq!(
            resolved(answers, false).await,
            [
                Ok(vec!["1.1.1.1:0".to_owned()]),
                Err(refused.to_owned()),
                Ok(vec!["1.1.1.1:0".to_owned(), "[2606:4700::1]:0".to_owned()]),
                Err("false the name has no address".to_owned()),
                Err(refused.to_owned()),
            ]
        );
        assert_eq!(resolved(vec![vec!["127.0.0.1"]], true).await, [Ok(vec!["127.0.0.1:0".to_owned()])]);
    }
}
