//! Connections of iWARP.
//!
//! # Making a connection
//!
//! A device of transport iWARP connects its QPs itself, each over one TCP connection. The driver
//! asks for it by CM_CONNECT, or by CM_LISTEN and CM_ACCEPT. The QP then goes from INIT to RTS.
//! MODIFY_QP never takes such a QP to RTR, RTS or SQD.
//!
//! The local address is one of the guest's netdev, and one that the host allows the guest. The
//! driver reserves the port in the guest, so that no program of the guest uses the same port.
//!
//! # Next hop, traffic class, VLAN
//!
//! A device with `VRDMA_CAP_NEXT_HOP` has no routes and no neighbours of its own:
//!
//! * CM_CONNECT names the MAC address to which frames to the peer go, and their VLAN
//!   (`VRDMA_CM_NEXT_HOP`). Both are those of the guest's own packets to the peer.
//! * Without `VRDMA_CM_NEXT_HOP` the command ends with `INVALID`.
//! * The connection keeps the next hop and the VLAN.
//! * Frames to a peer that connects go to where its first frame came from.
//!
//! All segments of a connection have one DS field (RFC 2474): that of its CM_CONNECT, or of its
//! listener. Frames to a peer that connects have the VLAN and the priority of its first frame. A
//! device that uses the TCP of its host leaves the priorities in VLANs to the host.
//!
//! # Events
//!
//! The driver fetches the events of connections by CM_GET_EVENT. `VRDMA_EVENT_CM` reports that
//! there may be some. The driver repeats CM_GET_EVENT until the reply has the kind
//! `VRDMA_CM_EVENT_NONE`.
//!
//! A connection has a number from the command or event that first names it, until CM_RELEASE or
//! CM_REJECT. It keeps no other object in use: its QP may be destroyed first, which ends the
//! connection.
//!
//! Each connection has at most these events, each at most once and in this order:
//!
//! * first, if a listener got the connection: CONNECT_REQUEST, then ESTABLISHED once the driver has
//!   accepted it;
//! * first, if the driver asked for the connection: CONNECT_REPLY;
//! * last, if the connection was established: DISCONNECT, then CLOSE.
//!
//! So at most four events of each connection wait for the driver, however slowly it asks and
//! whatever peers do. No event names a listener or a connection that is gone. A request that has
//! ended before the driver fetched it is never reported.
//!
//! # Status of commands
//!
//! Besides OK, commands about a connection end with these statuses:
//!
//! * Each command that names a connection: `NOT_FOUND` if the driver has no connection of this
//!   number.
//! * CM_ACCEPT, in this order:
//!   * `INVALID` if the connection was not requested by a peer, or has ended since. It ends by its
//!     peer, with its listener, or because the driver took too long.
//!   * Then for the QP: `NOT_FOUND` if there is none. `BUSY` if it has a connection that has not
//!     begun to end. `INVALID` if it is not in INIT.
//!   * `INVALID` if the peer wants something that the device does not support.
//!   * In each of these cases the connection stays as it was.
//! * CM_REJECT: `INVALID` if the connection was not requested by a peer, or was accepted. A
//!   connection that has ended since can still be rejected.
//! * CM_CONNECT: `DENIED` for addresses that the guest may not use. `BUSY` if the port is in use.
//!   `NO_RESOURCES` if the guest has as many connections and listeners as its limit allows. Then
//!   the statuses for the QP, as of CM_ACCEPT. `NOT_FOUND` if there is no way to the peer. A
//!   refused command sends nothing to any peer.
//! * CM_DISCONNECT: `NOT_FOUND` if there is no such QP. `INVALID` if it has not been connected
//!   since it was reset. A connection that is already ending continues to end.
//!
//! # Time limits
//!
//! Each phase has a limit, so that neither peers nor drivers keep connections for ever. The limits
//! are: from CM_CONNECT to TCP's connection, and from a peer's TCP connection to its request, 20 s;
//! from a request to the answer, the driver's or the peer's, 60 s; from CM_DISCONNECT to
//! DISCONNECT, 20 s, after which it is ended at once; from DISCONNECT to CLOSE, 5 s. A QP in ERR
//! whose peer takes none of what is to be sent to it first has 40 s.
//!
//! While a guest is paused, its open connections stay open. If one ends meanwhile, also by its time
//! limit, its QP learns of it once the guest continues.
//!
//! # Reuse of a QP
//!
//! A QP has its connection until DISCONNECT is reported. From then on it may be reset and connected
//! again, even before CLOSE.
//!
//! # Trust between processes of one guest
//!
//! The device knows guests. It does not know which program of a guest names a QP by its number. In
//! Linux's rdma_cm, processes name QPs when they connect or accept. A driver of that kind connects
//! a QP only for the process that owns it.
//!
//! Such a driver cannot tell whether a kernel user connects a QP of the kernel, or a process that
//! guessed its number. So a process may take a QP of the kernel that is in INIT.
