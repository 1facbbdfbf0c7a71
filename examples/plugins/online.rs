// Online softmax as a plug-in in Rust: the rule of online.c, without the standard library's help.
//
//     rustc --edition 2021 --crate-type cdylib -O -o online_rs.so online.rs
use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub struct Format {
    precision: i32,
    emin: i32,
    emax: i32,
    largest: f32,
}

#[repr(C)]
pub struct Kernel {
    size: u32,
    base: i32,
    queries: i64,
    keys: i64,
    padded_keys: i64,
    channels: i64,
    key_block: i32,
    query_block: i32,
    fused: i32,
    reserved: i32,
    factor: f32,
    score_factor: f32,
    largest_weight: f32,
    largest_value: f32,
    sink: f32,
    softcap: f32,
    operand: Format,
    norm: Format,
    store: Format,
    exponent: Format,
    context: *const c_void,
    query: extern "C" fn(*const Kernel, i64) -> *const f32,
    key: extern "C" fn(*const Kernel, i64) -> *const f32,
    sees: extern "C" fn(*const Kernel, i64, i64) -> c_int,
    score: extern "C" fn(*const Kernel, i64, *const f32) -> f32,
    scaled: extern "C" fn(*const Kernel, f32) -> f32,
    exponentials: extern "C" fn(*const Kernel, *const f32, *mut f32, usize),
    round_exponent: extern "C" fn(*const Kernel, f64) -> f32,
    round_store: extern "C" fn(*const Kernel, f64) -> f32,
}

#[repr(C)]
pub struct Tile {
    scores: *const f32,
    rows: i64,
    stride: i64,
    keys: i64,
    first_key: i64,
    tile: i64,
    last: i32,
    reserved: i32,
}

#[repr(C)]
pub struct Decision {
    shift: *mut f32,
    correction: *mut f32,
    recompute: *mut u8,
}

#[repr(C)]
pub struct Stabilizer {
    abi: u32,
    size: u32,
    name: *const c_char,
    summary: *const c_char,
    parameters: *const c_void,
    parameter_count: usize,
    fallback: *const c_char,
    flags: u32,
    reserved: u32,
    state_bytes: extern "C" fn(*const Kernel, *const f64) -> usize,
    init: extern "C" fn(*mut f32, *const Kernel, *const f64, *mut c_void) -> c_int,
    gate: *const c_void,
    before_loop: extern "C" fn(*mut f32, *const Kernel, *const i64, i64),
    order: *const c_void,
    tile: extern "C" fn(*mut f32, *const Kernel, *const Tile, *const Decision),
    finish: *const c_void,
}
unsafe impl Sync for Stabilizer {}

// The state is one maximum a row.
extern "C" fn state_bytes(kernel: *const Kernel, _: *const f64) -> usize {
    unsafe { (*kernel).queries as usize * 4 }
}

extern "C" fn init(_: *mut f32, _: *const Kernel, _: *const f64, _: *mut c_void) -> c_int {
    0
}

extern "C" fn before_loop(state: *mut f32, _: *const Kernel, _: *const i64, n: i64) {
    for r in 0..n as usize {
        unsafe { *state.add(r) = f32::NEG_INFINITY };
    }
}

extern "C" fn tile(
    state: *mut f32,
    kernel: *const Kernel,
    tile: *const Tile,
    decision: *const Decision,
) {
    let (k, t, d) = unsafe { (&*kernel, &*tile, &*decision) };
    for r in 0..t.rows as usize {
        let maximum = unsafe { &mut *state.add(r) };
        let old = *maximum;
        for j in 0..t.keys as usize {
            let score = unsafe { *t.scores.add(j * t.stride as usize + r) };
            if score > *maximum {
                *maximum = score;
            }
        }
        let shift = unsafe { &mut *d.shift.add(r) };
        if *maximum == f32::NEG_INFINITY {
            *shift = 0.0;
            continue;
        }
        *shift = (k.round_exponent)(kernel, *maximum as f64 * k.factor as f64);
        if t.tile > 0 {
            let change = (k.round_exponent)(kernel, old as f64 - *maximum as f64);
            let x = (k.round_exponent)(kernel, change as f64 * k.factor as f64);
            (k.exponentials)(kernel, &x, unsafe { d.correction.add(r) }, 1);
        }
    }
}

static TABLE: Stabilizer = Stabilizer {
    abi: 1,
    size: std::mem::size_of::<Stabilizer>() as u32,
    name: b"online-rust\0".as_ptr() as *const c_char,
    summary: b"running maximum of stored scores, scaled when subtracted\0".as_ptr() as *const c_char,
    parameters: std::ptr::null(),
    parameter_count: 0,
    fallback: std::ptr::null(),
    flags: 0,
    reserved: 0,
    state_bytes,
    init,
    gate: std::ptr::null(),
    before_loop,
    order: std::ptr::null(),
    tile,
    finish: std::ptr::null(),
};

#[no_mangle]
pub extern "C" fn headroom_stabilizer_entry() -> *const Stabilizer {
    &TABLE
}
