//! The matrix unit of some x86-64 processors, AMX: products of tiles of bytes, sixteen rows at a time.
//!
//! Rust has no stable intrinsics for it, so its instructions are written out. Linux gives a program its registers only when
//! asked.

use crate::input::Eight;
use crate::lines::Line;

/// The products of a group of 32 inputs: for sixteen outputs, line `r` holds those of the upper bytes of row `r`, line
/// `8 + r` those of its lower bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dots(pub(crate) [Line; 16]);

impl Dots {
    pub(crate) const ZERO: Self = Self([Line::ZERO; 16]);
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod unit {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;
    use std::marker::PhantomData;
    use std::sync::OnceLock;

    use super::{Dots, Eight, Line};

    /// Whether this processor has the unit and the system lets this program use it.
    pub(crate) fn available() -> bool {
        /// Bits of leaf 7: tiles, and products of bytes.
        const NEEDED: u32 = 1 << 24 | 1 << 25;
        const REQUEST_PERMISSION: libc::c_long = 0x1023;
        const TILE_DATA: libc::c_long = 18;
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| {
            let has = __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & NEEDED == NEEDED;
            // SAFETY: the call asks for the right to use the registers, and is refused where there are none.
            has && unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) } == 0
        })
    }

    /// What each tile register holds: a palette, then bytes of a row and rows for each.
    #[repr(C, align(64))]
    struct Config([u8; 64]);

    /// Registers 0, 3, 6, 7: sixteen rows of sums; 1, 4: sixteen rows of 32 bytes, activations; 2, 5: eight rows of 64 bytes,
    /// weights.
    static CONFIG: Config = {
        let (widths, rows) = ([64, 32, 64, 64, 32, 64, 64, 64], [16, 16, 8, 16, 16, 8, 16, 16]);
        let mut config = [0; 64];
        config[0] = 1;
        let mut register = 0;
        while register < 8 {
            config[16 + 2 * register] = widths[register];
            config[48 + register] = rows[register];
            register += 1;
        }
        Config(config)
    };

    /// This thread's tile registers, set up. They are given back when it is dropped.
    #[derive(Debug)]
    pub(crate) struct Tiles(PhantomData<*const ()>);

    impl Tiles {
        /// Sets them up, where there are some.
        pub(crate) fn start() -> Option<Self> {
            if !available() {
                return None;
            }
            // SAFETY: the unit is there, and the configuration is one that its palette has.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
            Some(Self(PhantomData))
        }

        /// Signed bytes of eight rows, upper and lower, times unsigned bytes of sixteen outputs: four inputs a word.
        #[inline(always)]
        pub(crate) fn dots(&self, x: &[[Eight; 8]; 2], w: &[Line; 8], out: &mut Dots) {
            // SAFETY: the registers are set up; the loads and the store cover exactly what the references point to.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tileloadd tmm1, [{x} + {row}*1]",
                    "tileloadd tmm2, [{w} + {line}*1]",
                    "tdpbsud tmm0, tmm1, tmm2",
                    "tilestored [{out} + {line}*1], tmm0",
                    x = in(reg) std::ptr::from_ref(x),
                    w = in(reg) std::ptr::from_ref(w),
                    out = in(reg) std::ptr::from_mut(out),
                    row = in(reg) 32usize,
                    line = in(reg) 64usize,
                    out("tmm0") _,
                    out("tmm1") _,
                    out("tmm2") _,
                    options(nostack),
                );
            }
        }

        /// The same for four groups: in registers of their own, since one group's product takes as long as four's.
        #[inline(always)]
        pub(crate) fn dots4(&self, x: &[[[Eight; 8]; 2]; 4], w: [&[Line; 8]; 4], out: &mut [Dots; 4]) {
            // SAFETY: as above; four groups' activations lie one behind the other, and so do their results.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tileloadd tmm1, [{x} + {row}*1]",
                    "tileloadd tmm2, [{w0} + {line}*1]",
                    "tdpbsud tmm0, tmm1, tmm2",
                    "tilezero tmm3",
                    "tileloadd tmm4, [{x} + {row}*1 + 512]",
                    "tileloadd tmm5, [{w1} + {line}*1]",
                    "tdpbsud tmm3, tmm4, tmm5",
                    "tilezero tmm6",
                    "tileloadd tmm1, [{x} + {row}*1 + 1024]",
                    "tileloadd tmm2, [{w2} + {line}*1]",
                    "tdpbsud tmm6, tmm1, tmm2",
                    "tilezero tmm7",
                    "tileloadd tmm4, [{x} + {row}*1 + 1536]",
                    "tileloadd tmm5, [{w3} + {line}*1]",
                    "tdpbsud tmm7, tmm4, tmm5",
                    "tilestored [{out} + {line}*1], tmm0",
                    "tilestored [{out} + {line}*1 + 1024], tmm3",
                    "tilestored [{out} + {line}*1 + 2048], tmm6",
                    "tilestored [{out} + {line}*1 + 3072], tmm7",
                    x = in(reg) std::ptr::from_ref(x),
                    w0 = in(reg) std::ptr::from_ref(w[0]),
                    w1 = in(reg) std::ptr::from_ref(w[1]),
                    w2 = in(reg) std::ptr::from_ref(w[2]),
                    w3 = in(reg) std::ptr::from_ref(w[3]),
                    out = in(reg) std::ptr::from_mut(out),
                    row = in(reg) 32usize,
                    line = in(reg) 64usize,
                    out("tmm0") _,
                    out("tmm1") _,
                    out("tmm2") _,
                    out("tmm3") _,
                    out("tmm4") _,
                    out("tmm5") _,
                    out("tmm6") _,
                    out("tmm7") _,
                    options(nostack),
                );
            }
        }
    }

    impl Drop for Tiles {
        fn drop(&mut self) {
            // SAFETY: there are registers, or there would be no value to drop.
            unsafe { asm!("tilerelease", options(nostack, nomem)) };
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod unit {
    use super::{Dots, Eight, Line};

    /// Of other processors none has the unit, and other systems were not tried.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn available() -> bool {
        false
    }

    /// There are none.
    #[derive(Debug)]
    pub(crate) enum Tiles {}

    impl Tiles {
        pub(crate) fn start() -> Option<Self> {
            None
        }

        pub(crate) fn dots(&self, _: &[[Eight; 8]; 2], _: &[Line; 8], _: &mut Dots) {
            match *self {}
        }

        pub(crate) fn dots4(&self, _: &[[[Eight; 8]; 2]; 4], _: [&[Line; 8]; 4], _: &mut [Dots; 4]) {
            match *self {}
        }
    }
}

pub(crate) use unit::*;
