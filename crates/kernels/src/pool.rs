//! A thread pool for work that takes microseconds.
//!
//! A decode step is some two hundred products of a few ten microseconds each, one after another, called from MLX's stream
//! thread. So a worker that has run out of work looks for more for a moment before it sleeps, and the caller takes part.
//! Pieces are claimed one by one: where another thread keeps a core, such as the one that builds the next step's graph,
//! the others do the work and nobody waits for a worker that never came.

use std::any::Any;
use std::hint;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a worker looks for work before it sleeps. A wake-up costs tens of microseconds, and the gaps between the
/// products of a step are shorter than this.
const PATIENCE: Duration = Duration::from_micros(200);

/// Runs `work(0)` to `work(pieces - 1)`, each once, in any order, on the caller and idle workers; returns when all have
/// ended. While another thread's pieces run, or inside a piece, the caller does everything itself.
///
/// # Panics
/// When a piece panics, with what it said, after the others have ended.
pub fn for_each(pieces: usize, work: impl Fn(usize) + Sync) {
    let pool = pool();
    let busy = match pool.busy.try_lock() {
        Ok(busy) if pieces > 1 && pool.workers > 0 => busy,
        Err(TryLockError::Poisoned(busy)) if pieces > 1 && pool.workers > 0 => busy.into_inner(),
        _ => return (0..pieces).for_each(work),
    };
    pool.run(pieces, &work, busy);
}

/// Threads that take part in the work, the caller among them.
#[must_use]
pub fn threads() -> usize {
    pool().workers + 1
}

struct Pool {
    workers: usize,
    /// Held by the caller whose job the workers run.
    busy: Mutex<()>,
    state: Mutex<State>,
    /// Told when there is a job.
    work: Condvar,
    /// Counts jobs, so that waiting workers need not take the lock to look.
    count: AtomicUsize,
    /// Workers that hold a reference to the job.
    inside: AtomicUsize,
}

struct State {
    job: Option<&'static Job<'static>>,
    asleep: usize,
}

/// Something to do in pieces.
struct Job<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    pieces: usize,
    next: AtomicUsize,
    /// What the first piece that panicked said.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    fn run(&self) {
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            if piece >= self.pieces {
                return;
            }
            if let Err(said) = panic::catch_unwind(AssertUnwindSafe(|| (self.work)(piece))) {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(said);
            }
        }
    }
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    static STARTED: OnceLock<()> = OnceLock::new();
    let pool = POOL.get_or_init(|| Pool {
        workers: thread::available_parallelism().map_or(0, |cores| cores.get() - 1),
        busy: Mutex::new(()),
        state: Mutex::new(State { job: None, asleep: 0 }),
        work: Condvar::new(),
        count: AtomicUsize::new(0),
        inside: AtomicUsize::new(0),
    });
    STARTED.get_or_init(|| {
        for number in 0..pool.workers {
            // Without the thread the others do its work.
            let _ = thread::Builder::new().name(format!("annulus-kernel-{number}")).spawn(|| pool.serve());
        }
    });
    pool
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, pieces: usize, work: &(dyn Fn(usize) + Sync), busy: MutexGuard<'_, ()>) {
        let job = Job { work, pieces, next: AtomicUsize::new(0), panic: Mutex::new(None) };
        // SAFETY: the lifetime is a lie to the workers only: below, this function waits until none of them can reach the
        // job any more, and nothing between can unwind.
        let lent = unsafe { std::mem::transmute::<&Job<'_>, &'static Job<'static>>(&job) };
        let asleep = {
            let mut state = self.state();
            state.job = Some(lent);
            self.count.fetch_add(1, Ordering::Release);
            state.asleep
        };
        for _ in 0..asleep.min(pieces - 1) {
            self.work.notify_one();
        }
        job.run();
        self.state().job = None;
        let mut looks = 0u32;
        while self.inside.load(Ordering::Acquire) > 0 {
            looks += 1;
            // A worker whose core was taken away needs it back.
            if looks.is_multiple_of(1024) { thread::yield_now() } else { hint::spin_loop() }
        }
        drop(busy);
        if let Some(said) = job.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            panic::resume_unwind(said);
        }
    }

    /// What a worker does all its life.
    fn serve(&self) {
        let mut seen = 0;
        loop {
            self.look(seen);
            let job = {
                let mut state = self.state();
                while self.count.load(Ordering::Acquire) == seen {
                    state.asleep += 1;
                    state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.asleep -= 1;
                }
                seen = self.count.load(Ordering::Acquire);
                if state.job.is_some() {
                    self.inside.fetch_add(1, Ordering::Relaxed);
                }
                state.job
            };
            if let Some(job) = job {
                job.run();
                self.inside.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Waits for another job than the one that was seen last, for a moment.
    fn look(&self, seen: usize) {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            for _ in 0..64 {
                if self.count.load(Ordering::Acquire) != seen {
                    return;
                }
                hint::spin_loop();
            }
        }
    }
}

/// Memory that pieces of parallel work write to, each its own part.
pub(crate) struct Parts<'a, T> {
    data: *mut T,
    length: usize,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it hands out only parts that do not overlap, as its users promise.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(all: &'a mut [T]) -> Self {
        Self { data: all.as_mut_ptr(), length: all.len(), lifetime: std::marker::PhantomData }
    }

    /// The elements from `from` on.
    ///
    /// # Safety
    /// No two parts that exist at the same time may overlap.
    ///
    /// # Panics
    /// When the part does not lie in the whole.
    #[allow(clippy::mut_from_ref, reason = "that is what it is for")]
    #[inline(always)]
    pub(crate) unsafe fn part(&self, from: usize, length: usize) -> &mut [T] {
        assert!(from <= self.length && length <= self.length - from, "{from} + {length} of {}", self.length);
        // SAFETY: inside the slice that this borrows, and unshared as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(from), length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_runs_once() {
        for pieces in [0, 1, 2, 3, 17, 1000] {
            for _ in 0..50 {
                let counts: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                for_each(pieces, |piece| {
                    counts[piece].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn callers_on_several_threads_and_inside_pieces() {
        let total = AtomicUsize::new(0);
        let add = |n| {
            total.fetch_add(n, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    for _ in 0..100 {
                        for_each(5, |_| for_each(3, |_| add(1)));
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4 * 100 * 5 * 3);
    }

    #[test]
    fn a_worker_wakes_up_again() {
        for wait in [0, 1, 5] {
            thread::sleep(Duration::from_millis(wait));
            let total = AtomicUsize::new(0);
            for_each(64, |piece| {
                total.fetch_add(piece, Ordering::Relaxed);
            });
            assert_eq!(total.into_inner(), 64 * 63 / 2);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let caught = panic::catch_unwind(|| for_each(8, |piece| assert!(piece != 5, "piece {piece}")));
        assert_eq!(caught.unwrap_err().downcast_ref::<String>().map(String::as_str), Some("piece 5"));
        let total = AtomicUsize::new(0);
        for_each(8, |_| {
            total.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(total.into_inner(), 8);
    }
}
