//! System calls without the C library, whose `errno` a child must not touch while it shares the
//! memory of the launcher: it would be that of the launcher's thread.
//! The processors are those whose stacks `stacks` can read.

use std::ffi::{c_int, c_long};

/// The kernel returns error numbers as `-1` to `-4095`.
const MOST_ERRNO: isize = 4095;

/// Makes a system call with these arguments, and returns its result or the error number.
///
/// # Safety
/// As for the system call.
pub unsafe fn call(number: c_long, arguments: [usize; 5]) -> Result<usize, c_int> {
    // SAFETY: the caller answers for the call.
    let result = unsafe { raw(number, arguments) };
    match (-MOST_ERRNO..0).contains(&result) {
        true => Err(-result as c_int),
        false => Ok(result as usize),
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn raw(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
    let result;
    // SAFETY: the registers are those of Linux; `syscall` overwrites rcx and r11, and memory only
    // as the call does.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
unsafe fn raw(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
    let result;
    // SAFETY: the registers are those of Linux; memory is overwritten only as the call does.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            options(nostack),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_returned_and_an_error_is_told_apart() {
        // SAFETY: the first call has no arguments, the second has a descriptor that cannot exist.
        let (pid, closed) = unsafe {
            (
                call(libc::SYS_getpid, [0; 5]),
                call(libc::SYS_close, [u32::MAX as usize, 0, 0, 0, 0]),
            )
        };
        assert_eq!(pid, Ok(std::process::id() as usize));
        assert_eq!(closed, Err(libc::EBADF));
    }
}
