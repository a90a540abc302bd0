/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMSTATE_H
#define VRDMA_CMSTATE_H

#include <linux/types.h>

/**
 * enum vrdma_cm_state - how far a connection is
 * @VRDMA_CM_CONNECTS: iw_cm waits for the answer of the peer
 * @VRDMA_CM_REQUESTED: the peer waits for the answer of iw_cm, which has given no cm_id
 * @VRDMA_CM_ACCEPTED: iw_cm has accepted it, and waits until it is established
 * @VRDMA_CM_OPEN: it is established
 * @VRDMA_CM_CLOSING: the peer has ended it
 * @VRDMA_CM_ORPHANED: to iw_cm it is over; the device has not said so
 * @VRDMA_CM_OVER: it is over for both
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
 * enum vrdma_cm_what - what happens to a connection
 * @VRDMA_CM_IGNORED: nothing that the driver knows
 * @VRDMA_CM_CONNECTED: the device says that the peer has accepted
 * @VRDMA_CM_NOT_CONNECTED: the device says that it could not be connected
 * @VRDMA_CM_ESTABLISHED: the device says that what was accepted is established
 * @VRDMA_CM_DISCONNECTED: the device says that the peer has ended it
 * @VRDMA_CM_CLOSED: the device says that it is over
 * @VRDMA_CM_QP_ENDED: its QP was taken to an end, or destroyed
 * @VRDMA_CM_FAILED: the driver gives it up
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

/* What iw_cm is told, in this order. */
#define VRDMA_CM_TELL_REPLY		1
#define VRDMA_CM_TELL_ESTABLISHED	2
#define VRDMA_CM_TELL_DISCONNECT	4
#define VRDMA_CM_TELL_CLOSE		8

/**
 * struct vrdma_cm_step - what becomes of a connection
 * @next: its state
 * @tell: what iw_cm is told of it
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
