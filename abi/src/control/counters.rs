//! Counters of the device.

use zerocopy::little_endian::U64;

layout! {
    /// What the device has counted since it was made. A reset clears no counter.
    ///
    /// A *message* is one of the IBTA's, of any length. Messages between guests of one host are not
    /// packets. Further counters will come in a longer structure that begins with this one.
    pub struct CountersResp = "vrdma_counters_resp" {
        /// Bytes of payload sent: of SENDs, WRITEs and ATOMIC WRITEs, and of answers to READs of
        /// peers.
        bytes_sent: U64,
        /// Bytes of payload received: of SENDs, WRITEs and ATOMIC WRITEs, and of answers to own
        /// READs.
        bytes_received: U64,
        /// RoCE packets sent.
        packets_sent: U64,
        /// RoCE packets received.
        packets_received: U64,
        /// SENDs executed as requester.
        sends: U64,
        /// WRITEs executed as requester.
        writes: U64,
        /// READs executed as requester.
        reads: U64,
        /// Atomics executed as requester, ATOMIC WRITEs included.
        atomics: U64,
        /// Messages that consumed a receive.
        receives: U64,
        /// Duplicate request packets received.
        duplicates: U64,
        /// Request packets received past the expected PSN.
        out_of_order: U64,
        /// RNR NAKs sent. On the same host: messages of peers that found no receive.
        rnr_naks_sent: U64,
        /// RNR NAKs received. On the same host: own messages that found no receive.
        rnr_naks_received: U64,
        /// NAKs sent for a gap in the PSNs.
        sequence_naks_sent: U64,
        /// NAKs received for a gap in the PSNs.
        sequence_naks_received: U64,
        /// Requests of peers refused: invalid requests, remote access errors, and failures of this
        /// device.
        requests_refused: U64,
        /// Own requests that failed by a peer's NAK.
        naks_received: U64,
        /// Local ACK timeouts.
        timeouts: U64,
        /// Attempts after the first.
        retries: U64,
        /// Requests that failed because the peer did not answer.
        retry_exceeded: U64,
        /// Requests that failed because the peer posted no receive in time.
        rnr_retry_exceeded: U64,
        /// Packets and messages dropped on arrival, for any reason.
        dropped: U64,
        /// Own messages lost because nobody has the address.
        unroutable: U64,
        /// Completions with an error. Flushes are not counted.
        errors: U64,
        /// Requests flushed.
        flushes: U64,
        /// Requests in channels that were dropped or malformed.
        bad_requests: U64,
        /// CQs that overran.
        cq_overruns: U64,
        /// Datagrams of this guest that named no address handle in use.
        bad_address_handles: U64,
    }
}
