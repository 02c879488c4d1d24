//! Connections between consumers and replicas: in order, delayed, and sometimes cut.

use std::collections::BTreeMap;

use crate::shared::Shared;
use crate::time::SEC;
use crate::words::{Client, ClientFrame, ConnId, Happening, Process, ServerFrame, ToConsumer, ToReplica};

/// How long a peer is silent before the other one takes it for dead.
const SILENCE: u64 = 25 * SEC;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing gets through, and nobody knows yet.
    Silent,
    Closed,
}

pub(crate) struct Conn {
    pub(crate) client: Client,
    pub(crate) process: Process,
    state: State,
    /// When the last frame arrives, in either direction.
    to_replica: u64,
    to_consumer: u64,
}

#[derive(Default)]
pub(crate) struct Network {
    conns: BTreeMap<ConnId, Conn>,
}

impl Network {
    pub(crate) fn get(&self, conn: ConnId) -> Option<&Conn> {
        self.conns.get(&conn)
    }

    /// Whether frames that are on their way still arrive.
    pub(crate) fn carries(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_some_and(|conn| conn.state == State::Open)
    }

    fn close(&mut self, conn: ConnId) -> bool {
        self.conns
            .get_mut(&conn)
            .is_some_and(|conn| std::mem::replace(&mut conn.state, State::Closed) != State::Closed)
    }

    /// Connections that are not closed, of which either end is picked.
    pub(crate) fn of(&self, pick: impl Fn(&Conn) -> bool) -> Vec<ConnId> {
        let open = self.conns.iter().filter(|(_, conn)| conn.state != State::Closed && pick(conn));
        open.map(|(id, _)| *id).collect()
    }
}

impl Shared {
    pub(crate) fn connect(&mut self, client: Client, process: Process) -> ConnId {
        let id = self.fresh();
        let conn = Conn { client, process, state: State::Open, to_replica: 0, to_consumer: 0 };
        self.net.conns.insert(id, conn);
        id
    }

    pub(crate) fn send_to_replica(&mut self, id: ConnId, frame: ClientFrame) {
        let at = self.now + self.net_delay();
        let Some(conn) = self.net.conns.get_mut(&id).filter(|conn| conn.state == State::Open) else { return };
        conn.to_replica = conn.to_replica.max(at);
        let happening = Happening::Replica(conn.process, ToReplica::Frame { conn: id, frame });
        self.queue.push(conn.to_replica, happening);
    }

    pub(crate) fn send_to_consumer(&mut self, id: ConnId, frame: ServerFrame) {
        let at = self.now + self.net_delay();
        let Some(conn) = self.net.conns.get_mut(&id).filter(|conn| conn.state == State::Open) else { return };
        conn.to_consumer = conn.to_consumer.max(at);
        let happening = Happening::Consumer(conn.client, ToConsumer::Frame { conn: id, frame });
        self.queue.push(conn.to_consumer, happening);
    }

    /// The connection ends as agreed, after what was sent.
    pub(crate) fn close_conn(&mut self, id: ConnId) {
        if self.net.close(id) {
            self.checker.stream_over(id, self.now);
        }
    }

    /// The connection breaks: both ends that still live hear of it soon.
    pub(crate) fn break_conn(&mut self, id: ConnId) {
        if !self.net.close(id) {
            return;
        }
        self.checker.stream_over(id, self.now);
        let (client, process) = {
            let conn = &self.net.conns[&id];
            (conn.client, conn.process)
        };
        let delay = self.net_delay();
        self.after(delay, Happening::Replica(process, ToReplica::Broken { conn: id }));
        let delay = self.net_delay();
        self.after(delay, Happening::Consumer(client, ToConsumer::Broken { conn: id }));
    }

    /// Nothing gets through any more; both ends hear of it when they have heard nothing for too long.
    pub(crate) fn silence_conn(&mut self, id: ConnId) {
        let Some(conn) = self.net.conns.get_mut(&id).filter(|conn| conn.state == State::Open) else { return };
        conn.state = State::Silent;
        let (client, process) = (conn.client, conn.process);
        self.after(SILENCE, Happening::Replica(process, ToReplica::Broken { conn: id }));
        self.after(SILENCE, Happening::Consumer(client, ToConsumer::Broken { conn: id }));
    }
}
