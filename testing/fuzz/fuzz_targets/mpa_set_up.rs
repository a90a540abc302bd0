#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    vrdma_fuzz::mpa_set_up(data);
});
