//! The open connections by the network that they come from. No network may hold more than its share, and a connection that
//! has not shown a key makes room for a new one: idle sockets of one host shut nobody out.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

/// Bits of an IPv6 address that one subscriber is given by a provider: the rest is theirs to choose.
const V6_NETWORK_BITS: u32 = 64;

/// What is known of a connection.
#[derive(Default)]
pub struct Standing {
    is_known: AtomicBool,
    requests: AtomicUsize,
    cut: Notify,
}

impl Standing {
    /// A request of this connection was let in with a key, or by this machine's keyless access.
    pub fn set_known(&self) {
        self.is_known.store(true, Relaxed);
    }

    /// Counts a request as under way until the answer is dropped.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        self.requests.fetch_add(1, Relaxed);
        UnderWay(self.clone())
    }

    /// Waits until the connection has to make room.
    pub async fn cut(&self) {
        self.cut.notified().await;
    }

    fn may_be_cut(&self) -> bool {
        !self.is_known.load(Relaxed) && self.requests.load(Relaxed) == 0
    }
}

/// A request that is under way.
pub struct UnderWay(Arc<Standing>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

struct Entry {
    network: IpAddr,
    standing: Arc<Standing>,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    /// By age: ids rise.
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

    /// Cuts the oldest connection (of a network) that is idle and has shown no key. False if there is none.
    fn cut_one(&mut self, of: Option<IpAddr>) -> bool {
        let found = self
            .open
            .iter()
            .find(|(_, e)| of.is_none_or(|network| e.network == network) && e.standing.may_be_cut())
            .map(|(id, e)| (*id, e.standing.clone()));
        let Some((id, standing)) = found else { return false };
        standing.cut.notify_one();
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

/// A connection's place; given back when dropped.
pub struct Guest {
    connections: Connections,
    id: u64,
    /// What is known of it.
    pub standing: Arc<Standing>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.connections.table().remove(self.id);
    }
}

impl Connections {
    /// None yet.
    pub fn new(per_address_max: usize) -> Self {
        Self { table: Arc::default(), per_address_max: per_address_max.max(1) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in. Nothing if its network has its share and none of them can make room.
    pub fn enter(&self, from: IpAddr) -> Option<Guest> {
        let network = network_of(from);
        let mut table = self.table();
        let count = table.by_network.get(&network).copied().unwrap_or(0);
        if count >= self.per_address_max && !table.cut_one(Some(network)) {
            metrics::counter!("annie_connections_cut_total", "reason" => "address_share").increment(1);
            return None;
        }
        let id = table.next_id;
        table.next_id += 1;
        let standing = Arc::new(Standing::default());
        table.open.insert(id, Entry { network, standing: standing.clone() });
        *table.by_network.entry(network).or_default() += 1;
        drop(table);
        Some(Guest { connections: self.clone(), id, standing })
    }

    /// Cuts one connection that may be cut, wherever it comes from.
    pub fn make_room(&self) {
        self.table().cut_one(None);
    }
}

/// The network that is taken for one caller: an IPv4 address, or an IPv6 subscriber's prefix.
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

    fn is_cut(guest: &Guest) -> bool {
        futures_util::FutureExt::now_or_never(guest.standing.cut()).is_some()
    }

    #[test]
    fn network_at_its_share_cuts_its_own_oldest_idle_keyless_connection() {
        let connections = Connections::new(3);
        let guests: Vec<Guest> = (0..3).map(|_| connections.enter(HERE).unwrap()).collect();
        let other = connections.enter(THERE).unwrap();
        guests[0].standing.set_known();
        let _request = guests[1].standing.begin();
        let fourth = connections.enter(HERE).unwrap();
        assert_eq!(guests.iter().map(is_cut).collect::<Vec<_>>(), [false, false, true]);
        assert!(!is_cut(&other) && !is_cut(&fourth));
    }

    #[test]
    fn network_whose_connections_are_all_in_use_is_refused_and_others_are_not() {
        let connections = Connections::new(2);
        let guests: Vec<Guest> = (0..2).map(|_| connections.enter(HERE).unwrap()).collect();
        guests.iter().for_each(|g| g.standing.set_known());
        assert!(connections.enter(HERE).is_none());
        let there = connections.enter(THERE).unwrap();
        drop(guests);
        assert!(connections.enter(HERE).is_some(), "a place that was given back is free");
        drop(there);
        assert!(connections.table().by_network.is_empty() && connections.table().open.is_empty());
    }

    #[test]
    fn room_is_made_by_the_oldest_idle_keyless_connection_of_all() {
        let connections = Connections::new(10);
        let guests: Vec<Guest> = [HERE, THERE].map(|at| connections.enter(at).unwrap()).into();
        connections.make_room();
        connections.make_room();
        connections.make_room();
        assert_eq!(guests.iter().map(is_cut).collect::<Vec<_>>(), [true, true]);
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
