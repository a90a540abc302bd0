#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    vrdma_fuzz::reorder(data);
});
