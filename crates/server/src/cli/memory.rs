//! How much memory the process has taken.

/// The most memory that was resident at a time, in bytes; 0 where the system does not tell.
pub(super) fn peak_bytes() -> u64 {
    #[cfg(unix)]
    {
        use nix::sys::resource::{UsageWho, getrusage};
        let peak = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.max_rss());
        // Apple counts in bytes, the others in KiB.
        let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
        u64::try_from(peak).unwrap_or(0) * unit
    }
    #[cfg(not(unix))]
    0
}
