//! See `portero_ingress::fuzz_entry::forwarded`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portero_ingress::fuzz_entry::forwarded(data));
