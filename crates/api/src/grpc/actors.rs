//! `annie.v1.Actors`: watches the actor tree. The other methods are in the table of operations.

use std::{collections::BTreeMap, time::Duration};

use futures_util::stream;
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval},
};
use tonic::{Request, Response, Status};

use super::{Service, Streamed, caller, convert, refused, v1};
use crate::{
    api::{AppState, Slot, TreePage, page},
    auth::{Access, Caller},
    error::ApiError,
};

/// The allowed interval between two reads of the tree by a watcher, in milliseconds.
const EVERY_MS: std::ops::RangeInclusive<u32> = 200..=60_000;

#[tonic::async_trait]
impl v1::actors_server::Actors for Service {
    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Streamed<v1::TreeChange>>, Status> {
        let caller = caller(&request)?;
        let watcher = Watcher::new(&self.state, &caller, request.into_inner()).map_err(refused)?;
        let changes = stream::unfold(Some(watcher), |watcher| async move {
            let mut watcher = watcher?;
            match watcher.next().await {
                Ok(change) => Some((Ok(change?), Some(watcher))),
                Err(error) => Some((Err(refused(error)), None)),
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }
}

/// A client that watches the tree. The tree is read only while it is watched, and only differences to the last read are sent.
struct Watcher {
    state: AppState,
    wanted: v1::WatchRequest,
    limit: u32,
    ticks: Interval,
    closing: watch::Receiver<bool>,
    until: Instant,
    known: BTreeMap<String, v1::Actor>,
    first: bool,
    access: Access,
    _slot: Slot,
}

impl Watcher {
    fn new(state: &AppState, caller: &Caller, wanted: v1::WatchRequest) -> Result<Self, ApiError> {
        let every_ms = if wanted.every_ms == 0 { 1_000 } else { wanted.every_ms };
        if !EVERY_MS.contains(&every_ms) {
            let why = format!("every {} to {} ms", EVERY_MS.start(), EVERY_MS.end());
            return Err(ApiError::invalid(why).at("every_ms"));
        }
        let mut ticks = interval(Duration::from_millis(u64::from(every_ms)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            state: state.clone(),
            limit: page::ACTORS.of_number(wanted.limit)?,
            wanted,
            ticks,
            closing: state.shared.closing(),
            until: Instant::now() + Duration::from_millis(state.limits.stream_ms_max),
            known: BTreeMap::new(),
            first: true,
            access: Access::of(&state.auth, caller),
            _slot: state.shared.slots.take(&caller.user, &state.limits)?,
        })
    }

    /// The next change; nothing at the end.
    async fn next(&mut self) -> Result<Option<v1::TreeChange>, ApiError> {
        loop {
            self.access.check_if_due().await?;
            tokio::select! {
                _ = self.closing.wait_for(|closing| *closing) => return Ok(None),
                () = tokio::time::sleep_until(self.until) => return Ok(None),
                () = self.access.due() => continue,
                _ = self.ticks.tick() => {}
            }
            let change = self.look()?;
            if std::mem::take(&mut self.first) || !change.changed.is_empty() || !change.gone.is_empty() {
                return Ok(Some(change));
            }
        }
    }

    fn look(&mut self) -> Result<v1::TreeChange, ApiError> {
        let page = TreePage::of(&self.state.kernel, &self.wanted.under, "", self.limit)?;
        let now: BTreeMap<String, v1::Actor> =
            page.actors.into_iter().map(convert::actor).map(|a| (a.path.clone(), a)).collect();
        let changed = now.iter().filter(|(path, actor)| self.known.get(*path) != Some(actor));
        let changed = changed.map(|(_, actor)| actor.clone()).collect();
        let gone = self.known.keys().filter(|path| !now.contains_key(*path)).cloned().collect();
        self.known = now;
        Ok(v1::TreeChange { changed, gone, total: page.total as u64 })
    }
}
