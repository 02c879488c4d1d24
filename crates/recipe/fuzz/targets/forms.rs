//! See `portero_recipe::fuzz_entry::forms`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portero_recipe::fuzz_entry::forms(data));
