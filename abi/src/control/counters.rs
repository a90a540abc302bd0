//! What commands say of counters.

use zerocopy::little_endian::U64;

layout! {
    /// What the device has counted since it was made; a reset clears none. (With further counters
    /// there will be a longer structure that begins with this one.)
    ///
    /// A *message* is one of the IBTA's, of any length; messages between guests of one host are no
    /// packets.
    pub struct CountersResp = "vrdma_counters_resp" {
        /// Bytes of payload that left: of SENDs, WRITEs and ATOMIC WRITEs, and what READs of peers
        /// took.
        bytes_sent: U64,
        /// Bytes of payload that came: of SENDs, WRITEs and ATOMIC WRITEs, and what own READs
        /// brought.
        bytes_received: U64,
        /// RoCE packets sent.
        packets_sent: U64,
        /// RoCE packets received.
        packets_received: U64,
        /// SENDs carried out as requester.
        sends: U64,
        /// WRITEs carried out as requester.
        writes: U64,
        /// READs carried out as requester.
        reads: U64,
        /// Atomics carried out as requester, ATOMIC WRITEs among them.
        atomics: U64,
        /// Messages that consumed a receive.
        receives: U64,
        /// Request packets that came again.
        duplicates: U64,
        /// Request packets past the one expected.
        out_of_order: U64,
        /// RNR NAKs sent, or on the same host messages that found no receive.
        rnr_naks_sent: U64,
        /// RNR NAKs received, or on the same host own messages that found no receive.
        rnr_naks_received: U64,
        /// NAKs sent for a gap in the PSNs.
        sequence_naks_sent: U64,
        /// NAKs received for a gap in the PSNs.
        sequence_naks_received: U64,
        /// Requests of peers refused: invalid, remote access, failures here.
        requests_refused: U64,
        /// Own requests that a peer's NAK failed.
        naks_received: U64,
        /// Local ACK timeouts.
        timeouts: U64,
        /// Attempts after the first.
        retries: U64,
        /// Requests that failed because the peer did not answer.
        retry_exceeded: U64,
        /// Requests that failed because the peer posted no receive in time.
        rnr_retry_exceeded: U64,
        /// Packets and messages dropped on arrival, for whatever reason.
        dropped: U64,
        /// Own messages that were lost: nobody has the address.
        unroutable: U64,
        /// Completions with an error, flushes not counted.
        errors: U64,
        /// Requests flushed.
        flushes: U64,
        /// Requests in channels that were dropped, or could not be understood.
        bad_requests: U64,
        /// CQs that overran.
        cq_overruns: U64,
        /// Datagrams of this guest that named no address handle in use.
        bad_address_handles: U64,
    }
}
