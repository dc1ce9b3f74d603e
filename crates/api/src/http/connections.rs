//! The open connections by the network that they come from. The number of connections per network is limited. At the limit, an
//! idle connection without a key is closed in favour of a new one, so that idle connections of one host do not block others.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

/// The network prefix of an IPv6 address, in bits. A provider assigns it to one subscriber, who chooses the remaining bits.
const V6_NETWORK_BITS: u32 = 64;

/// The state of one connection.
#[derive(Default)]
pub struct ConnectionState {
    is_known: AtomicBool,
    requests: AtomicUsize,
    cut: Notify,
}

impl ConnectionState {
    /// Records that a request of this connection was authenticated by a key, or as a local caller without a key.
    pub fn set_known(&self) {
        self.is_known.store(true, Relaxed);
    }

    /// Counts a request as in progress until the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        self.requests.fetch_add(1, Relaxed);
        UnderWay(self.clone())
    }

    /// Waits until the connection must close in favour of another one.
    pub async fn cut(&self) {
        self.cut.notified().await;
    }

    fn may_be_cut(&self) -> bool {
        !self.is_known.load(Relaxed) && self.requests.load(Relaxed) == 0
    }
}

/// A request in progress.
pub struct UnderWay(Arc<ConnectionState>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

struct Entry {
    network: IpAddr,
    connection: Arc<ConnectionState>,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    /// Ordered by age, because ids ascend.
    open: BTreeMap<u64, Entry>,
    by_network: HashMap<IpAddr, usize>,
}

impl Table {
    fn remove(&mut self, id: u64) {
        let Some(entry) = self.open.remove(&id) else { return };
        match self.by_network.get_mut(&entry.network) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.by_network.remove(&entry.network);
            }
        }
    }

    /// Closes the oldest connection (of the given network) that is idle and has shown no key. False if there is none.
    fn cut_one(&mut self, of: Option<IpAddr>) -> bool {
        let found = self
            .open
            .iter()
            .find(|(_, e)| of.is_none_or(|network| e.network == network) && e.connection.may_be_cut())
            .map(|(id, e)| (*id, e.connection.clone()));
        let Some((id, connection)) = found else { return false };
        connection.cut.notify_one();
        self.remove(id);
        metrics::counter!("annie_connections_cut_total", "reason" => "made_room").increment(1);
        true
    }
}

/// The open connections of one listener.
#[derive(Clone)]
pub struct Connections {
    table: Arc<Mutex<Table>>,
    per_address_max: usize,
}

/// An admitted connection. Its entry is removed when this is dropped.
pub struct AdmittedConnection {
    connections: Connections,
    id: u64,
    /// The state of the connection.
    pub connection: Arc<ConnectionState>,
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        self.connections.table().remove(self.id);
    }
}

impl Connections {
    /// An empty table.
    pub fn new(per_address_max: usize) -> Self {
        Self { table: Arc::default(), per_address_max: per_address_max.max(1) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection. Returns nothing if its network is at the limit and none of the network's connections can be closed.
    pub fn enter(&self, from: IpAddr) -> Option<AdmittedConnection> {
        let network = network_of(from);
        let mut table = self.table();
        let count = table.by_network.get(&network).copied().unwrap_or(0);
        if count >= self.per_address_max && !table.cut_one(Some(network)) {
            metrics::counter!("annie_connections_cut_total", "reason" => "address_share").increment(1);
            return None;
        }
        let id = table.next_id;
        table.next_id += 1;
        let connection = Arc::new(ConnectionState::default());
        table.open.insert(id, Entry { network, connection: connection.clone() });
        *table.by_network.entry(network).or_default() += 1;
        drop(table);
        Some(AdmittedConnection { connections: self.clone(), id, connection })
    }

    /// Closes one connection that may be closed, from any network.
    pub fn cut_idle(&self) {
        self.table().cut_one(None);
    }
}

/// The network that counts as one client: an IPv4 address, or the prefix of an IPv6 subscriber.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> V6_NETWORK_BITS << V6_NETWORK_BITS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn is_cut(admitted_connection: &AdmittedConnection) -> bool {
        futures_util::FutureExt::now_or_never(admitted_connection.connection.cut()).is_some()
    }

    #[test]
    fn full_network_cuts_its_oldest_idle_keyless_connection() {
        let connections = Connections::new(3);
        let admitted: Vec<AdmittedConnection> = (0..3).map(|_| connections.enter(HERE).unwrap()).collect();
        let other = connections.enter(THERE).unwrap();
        admitted[0].connection.set_known();
        let _request = admitted[1].connection.begin();
        let fourth = connections.enter(HERE).unwrap();
        assert_eq!(admitted.iter().map(is_cut).collect::<Vec<_>>(), [false, false, true]);
        assert!(!is_cut(&other) && !is_cut(&fourth));
    }

    #[test]
    fn network_with_all_connections_in_use_is_refused_and_others_are_not() {
        let connections = Connections::new(2);
        let admitted: Vec<AdmittedConnection> = (0..2).map(|_| connections.enter(HERE).unwrap()).collect();
        admitted.iter().for_each(|g| g.connection.set_known());
        assert!(connections.enter(HERE).is_none());
        let there = connections.enter(THERE).unwrap();
        drop(admitted);
        assert!(connections.enter(HERE).is_some(), "a closed connection frees its entry");
        drop(there);
        assert!(connections.table().by_network.is_empty() && connections.table().open.is_empty());
    }

    #[test]
    fn cut_idle_closes_oldest_idle_keyless_connection_of_all() {
        let connections = Connections::new(10);
        let admitted: Vec<AdmittedConnection> = [HERE, THERE].map(|at| connections.enter(at).unwrap()).into();
        connections.cut_idle();
        connections.cut_idle();
        connections.cut_idle();
        assert_eq!(admitted.iter().map(is_cut).collect::<Vec<_>>(), [true, true]);
    }

    #[test]
    fn addresses_of_one_ipv6_subscriber_are_one_network() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
