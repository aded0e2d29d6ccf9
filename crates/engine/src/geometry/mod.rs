//! What caches do, told to whoever listens, as lines of the scenario format.
//!
//! ```json
//! {"group": 0, "layouts": [{"kind": "full"}, {"kind": "rotating", "max_size": 512}]}
//! {"group": 0, "layout": 1, "seq": 17, "op": {"op": "append", "tokens": [[30]]}, "state": {"offsets": [30]}}
//! ```
//!
//! A group is one cache, and each of its layouts is told of separately, so that `annulus plan replay` can play every one as a
//! scenario and compare the states. Tags are serial numbers of tokens: a step is planned before its token is known.
//!
//! Listeners are never waited for. One that comes late or loses lines is told where the group stands, as an `adopt`, before it
//! hears of further moves. While nobody listens nothing is written down.
//!
//! # Layout
//! - [`Geometry`]: the listeners; [`Listener`]: one of them; [`LogFile`]: one that writes a file;
//! - `recorder`: follows one cache; `account`: one move as lines.

mod account;
mod file;
mod recorder;

pub use file::LogFile;
pub(crate) use recorder::{Recorder, Told};

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use account::Account;

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It was taken.
    Yes,
    /// There was no room for it; the next ones may find some.
    Lost,
    /// Nobody will take lines any more.
    Gone,
}

/// Whoever wants to know what caches do.
pub trait Listener: Send {
    /// Takes a line, without its end, at once: the model's thread calls this between two steps.
    fn take(&mut self, line: &str) -> Heard;

    /// Whether nobody will take lines any more.
    fn is_gone(&self) -> bool {
        false
    }
}

/// The moves of all caches of a process, and who listens to them.
#[derive(Default)]
pub struct Geometry {
    followers: Mutex<Vec<Follower>>,
    /// How many there are: caches ask this at every step.
    count: AtomicUsize,
    groups: AtomicU64,
}

impl fmt::Debug for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Geometry").field("followers", &self.count).finish_non_exhaustive()
    }
}

impl Geometry {
    /// Adds a listener, which hears of every move from now on.
    pub fn listen(&self, listener: Box<dyn Listener>) {
        let mut followers = self.lock();
        // Those who leave while nothing moves are noticed here.
        followers.retain(|follower| !follower.listener.is_gone());
        followers.push(Follower { listener, knows: BTreeSet::new(), follows: BTreeSet::new() });
        self.count.store(followers.len(), Ordering::Relaxed);
    }

    /// Whether anybody listens.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn new_group(&self) -> u64 {
        self.groups.fetch_add(1, Ordering::Relaxed)
    }

    fn tell(&self, account: &Account<'_>) {
        let done: Vec<_> =
            account.after.iter().enumerate().map(|(number, layout)| account.done(layout, number)).collect();
        let mut followers = self.lock();
        followers.retain_mut(|follower| follower.hear(account, &done) != Heard::Gone);
        self.count.store(followers.len(), Ordering::Relaxed);
    }

    /// Forgets a group that has ended.
    fn forget(&self, group: u64) {
        for follower in &mut *self.lock() {
            follower.knows.remove(&group);
            follower.follows.retain(|(of, _)| *of != group);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Follower>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener, and what it knows.
struct Follower {
    listener: Box<dyn Listener>,
    /// The groups whose layouts it was told.
    knows: BTreeSet<u64>,
    /// The layouts of groups of which it has missed nothing.
    follows: BTreeSet<(u64, usize)>,
}

impl Follower {
    /// Takes a move; `done` has a line for each layout.
    fn hear(&mut self, account: &Account<'_>, done: &[Option<String>]) -> Heard {
        let group = account.group;
        for (layout, done) in done.iter().enumerate() {
            let follows = account.begins || self.follows.remove(&(group, layout));
            let done = done.as_deref().filter(|_| follows).map(Cow::Borrowed);
            let Some(line) = done.or_else(|| account.stands(layout).map(Cow::Owned)) else { continue };
            if !self.knows.contains(&group) {
                match self.listener.take(&account.layouts()) {
                    Heard::Yes => self.knows.insert(group),
                    Heard::Lost => continue,
                    Heard::Gone => return Heard::Gone,
                };
            }
            match self.listener.take(&line) {
                Heard::Yes => self.follows.insert((group, layout)),
                Heard::Lost => continue,
                Heard::Gone => return Heard::Gone,
            };
        }
        Heard::Yes
    }
}
