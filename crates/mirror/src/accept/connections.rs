//! The open connections, and which of them makes room for another one.
//!
//! A connection holds a unit of a pool: first for its address, and once a request was authorized for its user. If the
//! pool admits no more of a holder, or of anybody, an idle connection makes room: the oldest one of the holder with the
//! most. So neither connections that send nothing nor a user with thousands of them keep others out, and an address
//! always gets a connection.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use listwatch::internal::WarningLimit;
use tokio::sync::Notify;

use super::open_responses::{ConnectionActivity, OpenResponses};
use crate::fairness::{FairPool, Holder, Peer, PoolFull, PoolPermit};
use crate::metrics::MirrorMetrics;

/// The connections that wait for a place at the same time.
const WAITING: usize = 100;

/// The number of the next connection.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The open connections of a listener. Clones share them.
#[derive(Clone)]
pub(crate) struct Connections(Arc<ConnectionList>);

struct ConnectionList {
    pool: FairPool,
    /// By their numbers, the oldest first.
    open: Mutex<BTreeMap<u64, Connection>>,
    limit: usize,
    warnings: WarningLimit,
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Connection(Arc<ConnectionState>);

struct ConnectionState {
    number: u64,
    place: Mutex<Place>,
    /// Notified when the connection must make room.
    evicted: Notify,
    responses: OpenResponses,
}

struct Place {
    holder: Holder,
    /// `None` before it has a place, and after it has made room.
    permit: Option<PoolPermit>,
}

impl Connections {
    pub(crate) fn new(connections: usize, metrics: &MirrorMetrics) -> Self {
        let pool = FairPool::new(connections, WAITING, metrics.pool("connections", connections));
        let (limit, warnings) = (connections, WarningLimit::default());
        Self(Arc::new(ConnectionList { pool, open: Mutex::default(), limit, warnings }))
    }

    /// Waits for a place for a connection of this address.
    ///
    /// # Errors
    ///
    /// [`PoolFull`] if too many connections wait already, and after 15 s.
    pub(super) async fn open(&self, peer: Peer) -> Result<OpenConnection, PoolFull> {
        let connection = Connection::of_peer(peer);
        let holder = Holder::Address(peer);
        let permit = match self.take_place(&holder) {
            Some(permit) => permit,
            None => self.0.pool.acquire(&holder).await?,
        };
        connection.place().permit = Some(permit);
        self.list().insert(connection.0.number, connection.clone());
        Ok(OpenConnection { connections: self.clone(), connection })
    }

    /// Counts a connection as the user's who has sent an authorized request.
    ///
    /// # Errors
    ///
    /// [`PoolFull`] if the user has its share of connections, and none of them is idle.
    pub(crate) fn set_holder(&self, connection: &Connection, holder: &Holder) -> Result<(), PoolFull> {
        let permit = {
            let mut place = connection.place();
            // Further users of a connection, as of a proxy, change nothing.
            if !matches!((&place.holder, holder), (Holder::Address(_), Holder::User(_))) || place.permit.is_none() {
                return Ok(());
            }
            place.permit.take()
        };
        let permit = permit.ok_or(PoolFull)?;
        let (moved, permit) = match permit.move_to(holder) {
            Ok(permit) => (Ok(()), permit),
            Err(permit) => {
                // The evicted connection's place is this one's, which returns its own.
                let evicted = self.evict(holder).ok_or(PoolFull).inspect_err(|_| self.0.pool.count_refused());
                (evicted.as_ref().map(drop).map_err(|full| *full), evicted.unwrap_or(permit))
            }
        };
        let mut place = connection.place();
        if moved.is_ok() {
            place.holder = holder.clone();
        }
        place.permit = Some(permit);
        moved
    }

    fn take_place(&self, holder: &Holder) -> Option<PoolPermit> {
        self.0.pool.try_acquire(holder, 1).ok().or_else(|| self.evict(holder))
    }

    /// Closes an idle connection, and returns its place, which is now this holder's: the oldest connection of the
    /// holder with the most, unless that has fewer than this holder.
    fn evict(&self, holder: &Holder) -> Option<PoolPermit> {
        let mut open = self.list();
        let own = self.0.pool.held(holder);
        let idle = open.values().filter(|connection| connection.is_idle()).filter_map(|connection| {
            let other = connection.place().holder.clone();
            let held = self.0.pool.held(&other);
            (other == *holder || held > own).then_some((held, connection))
        });
        // The first of the largest: `max_by_key` would return the last.
        let victim = idle.reduce(|first, next| if next.0 > first.0 { next } else { first });
        let number = victim?.1.0.number;
        let victim = open.remove(&number)?;
        let permit = victim.place().permit.take()?;
        victim.0.evicted.notify_one();
        if let Some(left_out) = self.0.warnings.admit("evicted") {
            let limit = self.0.limit;
            tracing::warn!(name: "listwatch.mirror.connections", limit, left_out, "many connections: idle ones make room");
        }
        Some(permit.give_to(holder))
    }

    fn list(&self) -> MutexGuard<'_, BTreeMap<u64, Connection>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that has a place, until it is dropped.
pub(super) struct OpenConnection {
    connections: Connections,
    pub(super) connection: Connection,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.list().remove(&self.connection.0.number);
        // A request that still runs may hold the connection.
        drop(self.connection.place().permit.take());
    }
}

impl Connection {
    /// Creates a connection that has no place yet.
    pub(crate) fn of_peer(peer: Peer) -> Self {
        Self(Arc::new(ConnectionState {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            place: Mutex::new(Place { holder: Holder::Address(peer), permit: None }),
            evicted: Notify::new(),
            responses: OpenResponses::default(),
        }))
    }

    /// Returns the number of the connection, which no other connection of this process has.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// Returns the user of the connection, or its address before that is known.
    pub(super) fn holder(&self) -> Holder {
        self.place().holder.clone()
    }

    pub(super) fn responses(&self) -> &OpenResponses {
        &self.0.responses
    }

    /// Waits until the connection must make room.
    pub(super) async fn evicted(&self) {
        self.0.evicted.notified().await;
    }

    fn is_idle(&self) -> bool {
        matches!(self.responses().check_activity(), ConnectionActivity::Idle { .. })
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.0.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.0.number).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn peer(host: u8) -> Peer {
        Peer::new([10, 0, 0, host].into())
    }

    fn open(connections: &Connections, host: u8) -> Option<Result<OpenConnection, PoolFull>> {
        connections.open(peer(host)).now_or_never()
    }

    fn is_evicted(open: &OpenConnection) -> bool {
        open.connection.evicted().now_or_never().is_some()
    }

    #[tokio::test]
    async fn an_idle_connection_of_the_largest_holder_makes_room() {
        let connections = Connections::new(8, &MirrorMetrics::default());
        let mut flood: Vec<_> = (0..6).map(|_| open(&connections, 1).unwrap().unwrap()).collect();
        // At three quarters, the flood replaces its own.
        let last = open(&connections, 1).unwrap().unwrap();
        assert!(is_evicted(&flood.remove(0)) && flood.iter().all(|open| !is_evicted(open)));
        flood.push(last);
        let others: Vec<_> = [2, 3].map(|host| open(&connections, host).unwrap().unwrap()).into();
        assert_eq!(connections.0.pool.used(), 8);
        // The pool is full, and the flood has the most. Its oldest connection is busy.
        let busy = flood[0].connection.responses().start_response(false);
        let newcomer = open(&connections, 4).unwrap().unwrap();
        assert!(is_evicted(&flood.remove(1)));
        assert!(others.iter().chain([&newcomer, &flood[0]]).all(|open| !is_evicted(open)));
        // Nobody makes room for a flood.
        let waits = flood.iter().map(|open| open.connection.responses().start_response(false)).collect::<Vec<_>>();
        assert!(open(&connections, 1).is_none());
        drop((waits, busy, others, newcomer, flood));
        assert_eq!((connections.0.pool.used(), connections.list().len()), (0, 0));
    }

    #[tokio::test]
    async fn a_user_has_at_most_what_is_left_free() {
        let (connections, user) = (Connections::new(8, &MirrorMetrics::default()), Holder::User("jane".into()));
        let opened: Vec<_> = (0..5).map(|_| open(&connections, 1).unwrap().unwrap()).collect();
        let busy: Vec<_> =
            opened.iter().map(|open| open.connection.responses().start_response(false)).collect::<Vec<_>>();
        let set = |at: usize| connections.set_holder(&opened[at].connection, &user);
        assert_eq!([set(0), set(1), set(2), set(3)], [Ok(()), Ok(()), Ok(()), Err(PoolFull)]);
        assert_eq!(set(0), Ok(()), "it is counted once");
        // One of the user's connections is idle now.
        drop(busy);
        let _busy = opened[3].connection.responses().start_response(false);
        assert_eq!(set(3), Ok(()));
        assert!(is_evicted(&opened[0]) && connections.0.pool.held(&user) == 3);
    }
}
