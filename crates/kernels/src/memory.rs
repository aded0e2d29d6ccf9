//! Advice to the operating system about large memory.

/// Asks for large pages behind memory that has not been touched yet: a model's weights then need hundreds of page faults
/// and address translations instead of hundreds of thousands. Where the system cannot, nothing happens.
pub fn prefer_large_pages<T>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        /// Less is not worth a system call. It may well be less than a large page: neighbours in memory add up.
        const LEAST: usize = 256 << 10;
        if size_of_val(memory) < LEAST {
            return;
        }
        let start = memory.as_mut_ptr().addr();
        let from = start.next_multiple_of(PAGE);
        let to = (start + size_of_val(memory)) / PAGE * PAGE;
        // SAFETY: the range lies within `memory`, and the advice changes nothing that a program can see.
        unsafe {
            libc::madvise(memory.as_mut_ptr().with_addr(from).cast(), to - from, libc::MADV_HUGEPAGE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_as_it_is() {
        for length in [0, 1, 1000, 3 << 20] {
            let mut memory = vec![0.0; length];
            prefer_large_pages(&mut memory);
            assert!(memory.iter().all(|x| *x == 0.0));
            memory.fill(1.0);
            prefer_large_pages(&mut memory);
            assert!(memory.iter().all(|x| *x == 1.0));
        }
    }
}
