//! See `portero_recipe::fuzz_entry::times`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portero_recipe::fuzz_entry::times(data));
