//! Bindings of the process groups in `shim/c10d.cc`.

use crate::ffi::exception::CppException;
use crate::ffi::store::{RawStore, StoreHandle};
use crate::ffi::{RawTensor, boxed, check, millis, raw};
use libc::c_int;
use std::ptr;
use std::ptr::NonNull;
use std::time::Duration;
use tch::Tensor;

/// An opaque `c10::intrusive_ptr<c10d::Backend>*`.
#[repr(C)]
pub(crate) struct RawGroup([u8; 0]);

unsafe extern "C" {
    fn rr_gloo_new(
        store: *mut RawStore,
        rank: c_int,
        world: c_int,
        limit_ms: i64,
        out: *mut *mut RawGroup,
    ) -> c_int;
    fn rr_group_share(group: *mut RawGroup) -> *mut RawGroup;
    fn rr_group_free(group: *mut RawGroup);
    fn rr_group_all_reduce(
        group: *mut RawGroup,
        tensor: RawTensor,
        operation: c_int,
        limit_ms: i64,
    ) -> c_int;
    fn rr_group_broadcast(
        group: *mut RawGroup,
        tensor: RawTensor,
        root: c_int,
        limit_ms: i64,
    ) -> c_int;
    fn rr_group_all_gather(
        group: *mut RawGroup,
        all: RawTensor,
        mine: RawTensor,
        limit_ms: i64,
    ) -> c_int;
    fn rr_group_barrier(group: *mut RawGroup, limit_ms: i64) -> c_int;
    fn rr_group_abort(group: *mut RawGroup) -> c_int;
    fn rr_group_shutdown(group: *mut RawGroup) -> c_int;
}

/// An owned `c10d::Backend`; clones share it.
pub struct GroupHandle(NonNull<RawGroup>);

// SAFETY: c10d counts references atomically, and Python also calls backends from any thread. The
// caller must issue the collectives in the same order on every rank, but memory safety does not
// depend on it.
unsafe impl Send for GroupHandle {}
// SAFETY: as above.
unsafe impl Sync for GroupHandle {}

impl Drop for GroupHandle {
    fn drop(&mut self) {
        // SAFETY: this handle owns the box and drops it once.
        unsafe { rr_group_free(self.0.as_ptr()) }
    }
}

impl Clone for GroupHandle {
    fn clone(&self) -> Self {
        // SAFETY: the box lives as long as `self`; the copy is a new box and never null (`new`
        // throws instead).
        Self(unsafe { NonNull::new_unchecked(rr_group_share(self.0.as_ptr())) })
    }
}

impl GroupHandle {
    /// Takes over a box that a shim has made.
    ///
    /// # Safety
    /// Nothing else may own the box.
    pub(crate) unsafe fn from_box(group: NonNull<RawGroup>) -> Self {
        Self(group)
    }

    pub fn gloo(
        store: &StoreHandle,
        rank: i32,
        world: i32,
        limit: Duration,
    ) -> Result<Self, CppException> {
        let mut out = ptr::null_mut();
        // SAFETY: the store's box outlives the call, and the group holds its own reference to the
        // store.
        check(unsafe { rr_gloo_new(store.as_ptr(), rank, world, millis(limit), &mut out) })?;
        Ok(Self(boxed(out)))
    }

    pub fn all_reduce(
        &self,
        tensor: &Tensor,
        operation: i32,
        limit: Duration,
    ) -> Result<(), CppException> {
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`; the shim copies the reference that it
        // needs.
        check(unsafe {
            rr_group_all_reduce(self.0.as_ptr(), raw(tensor), operation, millis(limit))
        })
    }

    pub fn broadcast(
        &self,
        tensor: &Tensor,
        root: i32,
        limit: Duration,
    ) -> Result<(), CppException> {
        // SAFETY: as in `all_reduce`.
        check(unsafe { rr_group_broadcast(self.0.as_ptr(), raw(tensor), root, millis(limit)) })
    }

    pub fn all_gather(
        &self,
        all: &Tensor,
        mine: &Tensor,
        limit: Duration,
    ) -> Result<(), CppException> {
        // SAFETY: as in `all_reduce`; c10d itself checks that the sizes match.
        check(unsafe { rr_group_all_gather(self.0.as_ptr(), raw(all), raw(mine), millis(limit)) })
    }

    pub fn barrier(&self, limit: Duration) -> Result<(), CppException> {
        // SAFETY: the box lives as long as `self`.
        check(unsafe { rr_group_barrier(self.0.as_ptr(), millis(limit)) })
    }

    pub fn abort(&self) -> Result<(), CppException> {
        // SAFETY: the box lives as long as `self`; c10d allows this call during a running
        // collective.
        check(unsafe { rr_group_abort(self.0.as_ptr()) })
    }

    pub fn shutdown(&self) -> Result<(), CppException> {
        // SAFETY: the box lives as long as `self`.
        check(unsafe { rr_group_shutdown(self.0.as_ptr()) })
    }
}
