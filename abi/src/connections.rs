//! Connections of iWARP.
//!
//! QPs of a device of transport iWARP are connected by the device, in a TCP connection that the
//! driver asks for: by CM_CONNECT, or by CM_LISTEN and CM_ACCEPT. From INIT the QP goes to RTS
//! then, and MODIFY_QP takes it to RTR, RTS or SQD never. The address is the guest's own, as its
//! netdev has it, and one that the host allows it; the driver reserves the port in the guest, so
//! that no program of it has the same.
//!
//! A device with `VRDMA_CAP_NEXT_HOP` has no routes and no neighbours of its own: CM_CONNECT says
//! with `VRDMA_CM_NEXT_HOP` to which MAC address frames to the peer go, and in which VLAN, both as
//! the guest's own packets to it would; without it, it ends with `INVALID`. The connection keeps
//! them. To peers that connect, frames go back to where their first one came from.
//!
//! All segments of a connection have one DS field (RFC 2474): that of its CM_CONNECT or of its
//! listener. Frames to who connects have the VLAN and the priority of its first one. A device that
//! uses the TCP of its host leaves priorities in VLANs to that host.
//!
//! What happens to connections is an event that the driver fetches by CM_GET_EVENT:
//! `VRDMA_EVENT_CM` tells that there may be some, until the reply has the kind
//! `VRDMA_CM_EVENT_NONE`. A connection has a number from the command or event that tells of it
//! first until CM_RELEASE or CM_REJECT. It keeps nothing else in use: its QP may be destroyed
//! first, which ends it.
//!
//! Of one connection the events are CONNECT_REQUEST (of one that a listener got) and, once the
//! driver has accepted it, ESTABLISHED; or CONNECT_REPLY (of one that the driver asked for); then,
//! if it was established, DISCONNECT and CLOSE; each once at most, in this order. So no more than
//! four of each connection wait for the driver, however slowly it asks and whatever peers do. No
//! event names a listener or a connection that is gone: a request that has ended before the driver
//! asked for it is never told.
//!
//! What commands about a connection end with, beside OK:
//!
//! * Its number is none that the driver has: `NOT_FOUND`.
//! * CM_ACCEPT: `INVALID` if it is none that was requested, or has ended since (by its peer, with
//!   its listener, or since the driver took too long). Then as for the QP: `NOT_FOUND` if there is
//!   none; `BUSY` if it has a connection that has not begun to end; `INVALID` if it is not in INIT.
//!   Or `INVALID` if the peer wants what this end does not have. The connection is as it was.
//! * CM_REJECT: `INVALID` if it is none that was requested, or was accepted. One that has ended
//!   since is rejected like another.
//! * CM_CONNECT: `DENIED` for addresses that the guest may not use. `BUSY` if the port is in use.
//!   `NO_RESOURCES` if the guest has all connections and listeners that its limit allows. Then as
//!   for the QP, as CM_ACCEPT. `NOT_FOUND` if there is no way to the peer. No peer hears of a
//!   command that is refused.
//! * CM_DISCONNECT: `NOT_FOUND` if there is no such QP, `INVALID` if it has not been connected
//!   since it was reset. One that ends already goes on with that.
//!
//! Nothing takes longer than this, so that neither peers nor drivers keep connections for ever:
//! from CM_CONNECT to TCP's connection, and from a peer's TCP connection to its request, 20 s; from
//! a request to the answer, the driver's or the peer's, 60 s; from CM_DISCONNECT to DISCONNECT, 20
//! s, after which it is ended at once; from DISCONNECT to CLOSE, 5 s. A QP in ERR whose peer takes
//! none of what is to be sent to it first has 40 s. While a guest is paused its open connections
//! stay open: what ended them meanwhile, time included, is told to their QPs once it goes on.
//!
//! A QP has its connection until DISCONNECT is told: it may be reset then, and connected again,
//! before CLOSE.
//!
//! The device knows guests, and not who of a guest means a QP by its number. A driver whose
//! processes name QPs when they connect or accept, as Linux's rdma_cm has them do, connects a QP
//! for its own process alone. What it cannot tell is whether a user of its kernel connects a QP of
//! the kernel, or a process that guessed the number: so the latter may take a QP of the kernel's
//! that is in INIT.
