//! Bindings of the store in `shim/c10d.cc`.

use crate::ffi::exception::CppException;
use crate::ffi::{boxed, c_string, check, millis};
use libc::{c_char, c_int, c_void};
use std::ptr;
use std::ptr::NonNull;
use std::time::Duration;

/// An opaque `c10::intrusive_ptr<c10d::Store>*`.
#[repr(C)]
pub(crate) struct RawStore([u8; 0]);

type Take = extern "C" fn(*mut c_void, *const u8, usize);

unsafe extern "C" {
    fn rr_store_connect(
        host: *const c_char,
        port: u16,
        world: usize,
        serve: bool,
        limit_ms: i64,
        out: *mut *mut RawStore,
    ) -> c_int;
    fn rr_store_port(store: *mut RawStore) -> u16;
    fn rr_store_prefix(
        inner: *mut RawStore,
        prefix: *const u8,
        len: usize,
        out: *mut *mut RawStore,
    ) -> c_int;
    fn rr_store_share(store: *mut RawStore) -> *mut RawStore;
    fn rr_store_free(store: *mut RawStore);
    fn rr_store_set(
        store: *mut RawStore,
        key: *const u8,
        len: usize,
        value: *const u8,
        size: usize,
    ) -> c_int;
    fn rr_store_get(
        s: *mut RawStore,
        key: *const u8,
        len: usize,
        ms: i64,
        to: *mut c_void,
        take: Take,
    ) -> c_int;
    fn rr_store_compare_set(
        store: *mut RawStore,
        key: *const u8,
        len: usize,
        expected: *const u8,
        expected_size: usize,
        desired: *const u8,
        desired_size: usize,
        to: *mut c_void,
        take: Take,
    ) -> c_int;
    fn rr_store_add(
        store: *mut RawStore,
        key: *const u8,
        len: usize,
        delta: i64,
        sum: *mut i64,
    ) -> c_int;
    fn rr_store_check(store: *mut RawStore, key: *const u8, len: usize, exists: *mut bool)
    -> c_int;
    fn rr_store_check_all(
        store: *mut RawStore,
        keys: *const *const u8,
        lengths: *const usize,
        count: usize,
        exist: *mut bool,
    ) -> c_int;
    fn rr_store_multi_get(
        store: *mut RawStore,
        keys: *const *const u8,
        lengths: *const usize,
        count: usize,
        to: *mut c_void,
        take: Take,
    ) -> c_int;
    fn rr_store_wait(
        store: *mut RawStore,
        keys: *const *const u8,
        lengths: *const usize,
        count: usize,
        limit_ms: i64,
    ) -> c_int;
    fn rr_store_delete(
        store: *mut RawStore,
        key: *const u8,
        len: usize,
        existed: *mut bool,
    ) -> c_int;
}

/// An owned `c10d::Store`; clones share it.
pub struct StoreHandle(NonNull<RawStore>);

// SAFETY: c10d counts references atomically, and TCPStore and PrefixStore guard each operation with
// a mutex (`TCPStore::activeOpLock_`, torch 2.11).
unsafe impl Send for StoreHandle {}
// SAFETY: as above.
unsafe impl Sync for StoreHandle {}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        // SAFETY: this handle owns the box and drops it once.
        unsafe { rr_store_free(self.0.as_ptr()) }
    }
}

impl Clone for StoreHandle {
    fn clone(&self) -> Self {
        // SAFETY: the box lives as long as `self`; the copy is a new box and never null (`new`
        // throws instead).
        Self(unsafe { NonNull::new_unchecked(rr_store_share(self.0.as_ptr())) })
    }
}

impl StoreHandle {
    /// Returns the box for a call to a shim.
    pub(crate) fn as_ptr(&self) -> *mut RawStore {
        self.0.as_ptr()
    }

    pub fn connect(
        host: &str,
        port: u16,
        world: usize,
        serve: bool,
        limit: Duration,
    ) -> Result<Self, CppException> {
        let host = c_string(host)?;
        let mut out = ptr::null_mut();
        // SAFETY: `host` is terminated by a zero byte and outlives the call; `out` is written
        // before success is returned.
        check(unsafe {
            rr_store_connect(host.as_ptr(), port, world, serve, millis(limit), &mut out)
        })?;
        Ok(Self(boxed(out)))
    }

    pub fn port(&self) -> u16 {
        // SAFETY: the box lives as long as `self`.
        unsafe { rr_store_port(self.0.as_ptr()) }
    }

    pub fn prefix(&self, prefix: &str) -> Result<Self, CppException> {
        let mut out = ptr::null_mut();
        // SAFETY: pointer and length belong to one `&str`; the new store holds its own reference to
        // this one.
        check(unsafe {
            rr_store_prefix(self.0.as_ptr(), prefix.as_ptr(), prefix.len(), &mut out)
        })?;
        Ok(Self(boxed(out)))
    }

    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), CppException> {
        // SAFETY: pointers and lengths belong to two slices, which are copied during the call.
        check(unsafe {
            rr_store_set(
                self.0.as_ptr(),
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
            )
        })
    }

    pub fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>, CppException> {
        let mut value = Vec::<u8>::new();
        let taker = (&raw mut value).cast();
        // SAFETY: `append` is called at most once, during this call, with `taker` pointing to the
        // live `value`.
        check(unsafe {
            rr_store_get(
                self.0.as_ptr(),
                key.as_ptr(),
                key.len(),
                millis(limit),
                taker,
                append,
            )
        })?;
        Ok(value)
    }

    pub fn compare_set(
        &self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, CppException> {
        let mut value = Vec::<u8>::new();
        let taker = (&raw mut value).cast();
        // SAFETY: pointers and lengths belong to three slices, which are copied during the call;
        // `append` as in `get`.
        check(unsafe {
            rr_store_compare_set(
                self.0.as_ptr(),
                key.as_ptr(),
                key.len(),
                expected.as_ptr(),
                expected.len(),
                desired.as_ptr(),
                desired.len(),
                taker,
                append,
            )
        })?;
        Ok(value)
    }

    pub fn add(&self, key: &str, delta: i64) -> Result<i64, CppException> {
        let mut sum = 0;
        // SAFETY: the key is a slice, and `sum` outlives the call.
        check(unsafe { rr_store_add(self.0.as_ptr(), key.as_ptr(), key.len(), delta, &mut sum) })?;
        Ok(sum)
    }

    pub fn check(&self, key: &str) -> Result<bool, CppException> {
        let mut exists = false;
        // SAFETY: the key is a slice, and `exists` outlives the call and receives a C++ bool.
        check(unsafe { rr_store_check(self.0.as_ptr(), key.as_ptr(), key.len(), &mut exists) })?;
        Ok(exists)
    }

    pub fn check_all(&self, keys: &[String]) -> Result<bool, CppException> {
        let (mut exist, (keys, lengths)) = (false, parts(keys));
        // SAFETY: the lists have as many pointers and lengths of slices as is said; `exist` outlives
        // the call and receives a C++ bool.
        check(unsafe {
            rr_store_check_all(
                self.0.as_ptr(),
                keys.as_ptr(),
                lengths.as_ptr(),
                keys.len(),
                &mut exist,
            )
        })?;
        Ok(exist)
    }

    pub fn multi_get(&self, keys: &[String]) -> Result<Vec<Vec<u8>>, CppException> {
        let mut values = Vec::<Vec<u8>>::new();
        let (keys, lengths) = parts(keys);
        // SAFETY: the lists have as many pointers and lengths of slices as is said; `push` is called
        // during this call only, with a pointer to the live `values`.
        check(unsafe {
            rr_store_multi_get(
                self.0.as_ptr(),
                keys.as_ptr(),
                lengths.as_ptr(),
                keys.len(),
                (&raw mut values).cast(),
                push,
            )
        })?;
        Ok(values)
    }

    pub fn wait<S: AsRef<str>>(&self, keys: &[S], limit: Duration) -> Result<(), CppException> {
        let (keys, lengths) = parts(keys);
        // SAFETY: the lists have as many pointers and lengths of slices as is said.
        check(unsafe {
            rr_store_wait(
                self.0.as_ptr(),
                keys.as_ptr(),
                lengths.as_ptr(),
                keys.len(),
                millis(limit),
            )
        })
    }

    pub fn delete(&self, key: &str) -> Result<bool, CppException> {
        let mut existed = false;
        // SAFETY: the key is a slice, and `existed` outlives the call and receives a C++ bool.
        check(unsafe { rr_store_delete(self.0.as_ptr(), key.as_ptr(), key.len(), &mut existed) })?;
        Ok(existed)
    }
}

/// Returns pointers to these keys, and their lengths.
fn parts<S: AsRef<str>>(keys: &[S]) -> (Vec<*const u8>, Vec<usize>) {
    let parts = |key: &S| (key.as_ref().as_ptr(), key.as_ref().len());
    keys.iter().map(parts).unzip()
}

/// The callback that receives one of several values from the store.
extern "C" fn push(taker: *mut c_void, value: *const u8, size: usize) {
    let mut one = Vec::new();
    append((&raw mut one).cast(), value, size);
    // SAFETY: `taker` is the vector of `StoreHandle::multi_get`, which nothing else borrows during
    // that call.
    unsafe { (*taker.cast::<Vec<Vec<u8>>>()).push(one) }
}

/// The callback that receives a value from the store.
extern "C" fn append(taker: *mut c_void, value: *const u8, size: usize) {
    if size == 0 {
        return; // the data pointer of an empty vector may be null
    }
    // SAFETY: `taker` is the vector of `StoreHandle::get`, `compare_set` or `push`, which nothing else
    // borrows during that call; `value` points to `size` bytes of a `std::vector` that lives until
    // this returns.
    unsafe { (*taker.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(value, size)) }
}
