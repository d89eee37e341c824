/// Keeps the other processes of this user from reading this one: its environment, where the store's URL may stand with
/// its password, and its memory. The command under the lock is one of them, and is itself as open as ever, because that
/// is decided anew for each program that is started. The price is that this user's debuggers cannot look in and that a
/// crash leaves no core dump.
///
/// It holds root off nowhere. That it fails is no reason to run nothing.
pub(crate) fn close_to_others() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_dumpable(false);
}
