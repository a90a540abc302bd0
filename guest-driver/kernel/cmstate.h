/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMSTATE_H
#define VRDMA_CMSTATE_H

#include <linux/types.h>

/**
 * enum vrdma_cm_state - state of an iWARP connection
 * @VRDMA_CM_CONNECTS: iw_cm waits for the answer of the peer
 * @VRDMA_CM_REQUESTED: the peer waits for the answer of iw_cm, which has given no cm_id yet
 * @VRDMA_CM_ACCEPTED: iw_cm has accepted the connection, and waits until it is established
 * @VRDMA_CM_OPEN: the connection is established
 * @VRDMA_CM_CLOSING: the peer has ended the connection
 * @VRDMA_CM_ORPHANED: the connection is over for iw_cm; the device has not reported its end yet
 * @VRDMA_CM_OVER: the connection is over for iw_cm and for the device
 */
enum vrdma_cm_state {
	VRDMA_CM_CONNECTS,
	VRDMA_CM_REQUESTED,
	VRDMA_CM_ACCEPTED,
	VRDMA_CM_OPEN,
	VRDMA_CM_CLOSING,
	VRDMA_CM_ORPHANED,
	VRDMA_CM_OVER,
};

/**
 * enum vrdma_cm_what - an event of an iWARP connection
 * @VRDMA_CM_IGNORED: an event that the driver does not know
 * @VRDMA_CM_CONNECTED: the device reports that the peer has accepted
 * @VRDMA_CM_NOT_CONNECTED: the device reports that the attempt to connect failed
 * @VRDMA_CM_ESTABLISHED: the device reports that an accepted connection is established
 * @VRDMA_CM_DISCONNECTED: the device reports that the peer has ended the connection
 * @VRDMA_CM_CLOSED: the device reports that the connection is over
 * @VRDMA_CM_QP_ENDED: the QP of the connection was moved to ERR or RESET, or destroyed
 * @VRDMA_CM_FAILED: the driver gives the connection up
 */
enum vrdma_cm_what {
	VRDMA_CM_IGNORED,
	VRDMA_CM_CONNECTED,
	VRDMA_CM_NOT_CONNECTED,
	VRDMA_CM_ESTABLISHED,
	VRDMA_CM_DISCONNECTED,
	VRDMA_CM_CLOSED,
	VRDMA_CM_QP_ENDED,
	VRDMA_CM_FAILED,
};

/* Events that iw_cm is told of, in this order. */
#define VRDMA_CM_TELL_REPLY		1
#define VRDMA_CM_TELL_ESTABLISHED	2
#define VRDMA_CM_TELL_DISCONNECT	4
#define VRDMA_CM_TELL_CLOSE		8

/**
 * struct vrdma_cm_step - result of an event of a connection
 * @next: new state of the connection
 * @tell: events that iw_cm is told of, VRDMA_CM_TELL_*
 */
struct vrdma_cm_step {
	enum vrdma_cm_state next;
	unsigned int tell;
};

enum vrdma_cm_what vrdma_cm_what(u32 kind, u32 status);
struct vrdma_cm_step vrdma_cm_step(enum vrdma_cm_state state, enum vrdma_cm_what what);
bool vrdma_cm_is_limited(enum vrdma_cm_state state);
bool vrdma_cm_has_id(enum vrdma_cm_state state);
int vrdma_cm_errno(u32 status);

#endif /* VRDMA_CMSTATE_H */
