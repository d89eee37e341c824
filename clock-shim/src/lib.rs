//! Shifts the clocks of the program that it is preloaded into, while the program runs.
//!
//! `LD_PRELOAD` names this library, and `DISTLOCK_TEST_CLOCK` a file of five numbers (64 bits each, with a sign, as the machine
//! writes them), which whoever runs the test may change at any time; zeros change nothing:
//!
//! | number | what |
//! |---|---|
//! | 0 | added to the wall clock, in nanoseconds |
//! | 1 | added to the boot-time clock, in nanoseconds: the machine was suspended |
//! | 2 | how much faster the steady clocks, monotonic and boot-time, run: in millionths, less than 0 for slower |
//! | 3, 4 | where the monotonic and the boot-time clock stood when that began, in nanoseconds |
//!
//! It replaces `clock_gettime`, `gettimeofday` and `time` for programs that ask the C library. Timers of the kernel are as
//! they were.

use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use libc::{c_int, c_void, clockid_t, time_t, timespec, timeval};

const FILE: &std::ffi::CStr = c"DISTLOCK_TEST_CLOCK";
const SECOND: i64 = 1_000_000_000;

/// The numbers of the file, in its order.
#[repr(C)]
struct Shifts {
    wall: AtomicI64,
    boot: AtomicI64,
    faster: AtomicI64,
    since_monotonic: AtomicI64,
    since_boot: AtomicI64,
}

static NO_SHIFTS: Shifts = Shifts {
    wall: AtomicI64::new(0),
    boot: AtomicI64::new(0),
    faster: AtomicI64::new(0),
    since_monotonic: AtomicI64::new(0),
    since_boot: AtomicI64::new(0),
};

/// Null until somebody asks for the time.
static SHIFTS: AtomicPtr<Shifts> = AtomicPtr::new(ptr::null_mut());

impl Shifts {
    /// What a clock that stands at `real` shows.
    fn shown(&self, clock: clockid_t, real: i64) -> i64 {
        let number = |number: &AtomicI64| number.load(Ordering::Relaxed);
        let faster = |since: i64| {
            let more = i128::from(real - since) * i128::from(number(&self.faster)) / 1_000_000;
            more as i64
        };
        match clock {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => real + number(&self.wall),
            libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_MONOTONIC_RAW => {
                real + faster(number(&self.since_monotonic))
            }
            libc::CLOCK_BOOTTIME => real + faster(number(&self.since_boot)) + number(&self.boot),
            _ => real,
        }
    }
}

/// As in the C library.
///
/// # Safety
///
/// As in the C library: `time` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the kernel checks both.
    let status = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    if status != 0 || time.is_null() {
        return -1;
    }
    // SAFETY: the kernel has just written to it.
    let time = unsafe { &mut *time };
    let shown = shifts().shown(clock, time.tv_sec * SECOND + time.tv_nsec);
    time.tv_sec = shown.div_euclid(SECOND);
    time.tv_nsec = shown.rem_euclid(SECOND);
    0
}

/// As in the C library, which takes no notice of the zone either.
///
/// # Safety
///
/// As in the C library: `time` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, _zone: *mut c_void) -> c_int {
    let now = wall();
    // SAFETY: the caller's promise.
    if let Some(time) = unsafe { time.as_mut() } {
        time.tv_sec = now.tv_sec;
        time.tv_usec = now.tv_nsec / 1000;
    }
    0
}

/// As in the C library.
///
/// # Safety
///
/// As in the C library: `time` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut time_t) -> time_t {
    let now = wall().tv_sec;
    // SAFETY: the caller's promise.
    if let Some(time) = unsafe { time.as_mut() } {
        *time = now;
    }
    now
}

fn wall() -> timespec {
    let mut now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it is ours.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    now
}

fn shifts() -> &'static Shifts {
    let mut shifts = SHIFTS.load(Ordering::Acquire);
    if shifts.is_null() {
        shifts = map().unwrap_or((&raw const NO_SHIFTS).cast_mut());
        SHIFTS.store(shifts, Ordering::Release);
    }
    // SAFETY: both the static and the mapping stay for good, are aligned, and hold atomics that may be read by anybody.
    unsafe { &*shifts }
}

/// Called before the program has a memory of its own, perhaps: allocates nothing.
fn map() -> Option<*mut Shifts> {
    // SAFETY: the name is a C string.
    let path = unsafe { libc::getenv(FILE.as_ptr()) };
    if path.is_null() {
        return None;
    }
    // SAFETY: the path is a C string, and the mapping is read-only and as long as what is read of it. The file is never cut.
    let mapping = unsafe {
        let file = libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC);
        let mapping = libc::mmap(
            ptr::null_mut(),
            size_of::<Shifts>(),
            libc::PROT_READ,
            libc::MAP_SHARED,
            file,
            0,
        );
        libc::close(file);
        mapping
    };
    if mapping == libc::MAP_FAILED {
        // A clock that does not move would make a test pass that shows nothing.
        // SAFETY: nothing is asked of the caller.
        unsafe { libc::abort() };
    }
    Some(mapping.cast())
}
