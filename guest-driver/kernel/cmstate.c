// SPDX-License-Identifier: GPL-2.0
/*
 * The states of an iWARP connection, whatever the device reports about it.
 *
 * iw_cm treats a wrong order of events as a kernel bug. A reply or ESTABLISHED comes once and
 * first, CLOSE once and last.
 *
 * A test runs this file on the host (tests/tests/end_to_end/iw_states.rs). So it calls nothing.
 */
#include <linux/errno.h>
#include <linux/types.h>

#include "cmstate.h"
#include "vrdma_abi.h"

/* Returns what an event of the device means. */
enum vrdma_cm_what vrdma_cm_what(u32 kind, u32 status)
{
	switch (kind) {
	case VRDMA_CM_EVENT_CONNECT_REPLY:
		return status == VRDMA_CM_OK ? VRDMA_CM_CONNECTED : VRDMA_CM_NOT_CONNECTED;
	case VRDMA_CM_EVENT_ESTABLISHED:
		return VRDMA_CM_ESTABLISHED;
	case VRDMA_CM_EVENT_DISCONNECT:
		return VRDMA_CM_DISCONNECTED;
	case VRDMA_CM_EVENT_CLOSE:
		return VRDMA_CM_CLOSED;
	default:
		return VRDMA_CM_IGNORED;
	}
}

/*
 * Returns the state after an end. After the end of a QP, the device still has to report the end of
 * the connection. Otherwise nothing more is expected from it.
 */
static enum vrdma_cm_state ended(enum vrdma_cm_what what)
{
	return what == VRDMA_CM_QP_ENDED ? VRDMA_CM_ORPHANED : VRDMA_CM_OVER;
}

/* Whether an event ends a connection that has begun. */
static bool ends(enum vrdma_cm_what what)
{
	return what == VRDMA_CM_CLOSED || what == VRDMA_CM_QP_ENDED || what == VRDMA_CM_FAILED;
}

/**
 * vrdma_cm_step() - apply an event to the state of a connection
 * @state: state of the connection
 * @what: the event
 *
 * Events that make no sense in the state change nothing.
 *
 * Return: the new state, and what iw_cm is told
 */
struct vrdma_cm_step vrdma_cm_step(enum vrdma_cm_state state, enum vrdma_cm_what what)
{
	struct vrdma_cm_step step = { .next = state };

	switch (state) {
	case VRDMA_CM_CONNECTS:
		if (what == VRDMA_CM_CONNECTED)
			step = (struct vrdma_cm_step){ VRDMA_CM_OPEN, VRDMA_CM_TELL_REPLY };
		else if (what == VRDMA_CM_NOT_CONNECTED || ends(what))
			step = (struct vrdma_cm_step){ ended(what), VRDMA_CM_TELL_REPLY };
		break;
	case VRDMA_CM_REQUESTED:
		/* iw_cm finds out about the end when it answers. */
		if (ends(what))
			step.next = VRDMA_CM_OVER;
		break;
	case VRDMA_CM_ACCEPTED:
		if (what == VRDMA_CM_ESTABLISHED)
			step = (struct vrdma_cm_step){ VRDMA_CM_OPEN, VRDMA_CM_TELL_ESTABLISHED };
		else if (ends(what))
			/* iw_cm accepts no end before the beginning. */
			step = (struct vrdma_cm_step){ ended(what), VRDMA_CM_TELL_ESTABLISHED |
								    VRDMA_CM_TELL_CLOSE };
		break;
	case VRDMA_CM_OPEN:
		if (what == VRDMA_CM_DISCONNECTED)
			step = (struct vrdma_cm_step){ VRDMA_CM_CLOSING, VRDMA_CM_TELL_DISCONNECT };
		else if (ends(what))
			step = (struct vrdma_cm_step){ ended(what), VRDMA_CM_TELL_CLOSE };
		break;
	case VRDMA_CM_CLOSING:
		if (ends(what))
			step = (struct vrdma_cm_step){ ended(what), VRDMA_CM_TELL_CLOSE };
		break;
	case VRDMA_CM_ORPHANED:
		if (what == VRDMA_CM_NOT_CONNECTED || what == VRDMA_CM_CLOSED ||
		    what == VRDMA_CM_FAILED)
			step.next = VRDMA_CM_OVER;
		break;
	case VRDMA_CM_OVER:
		break;
	}
	return step;
}

/* Whether the state is limited in time, because others wait for its end. */
bool vrdma_cm_is_limited(enum vrdma_cm_state state)
{
	return state != VRDMA_CM_OPEN && state != VRDMA_CM_OVER;
}

/* Whether iw_cm is told of events in this state, so that its cm_id is kept. */
bool vrdma_cm_has_id(enum vrdma_cm_state state)
{
	switch (state) {
	case VRDMA_CM_CONNECTS:
	case VRDMA_CM_ACCEPTED:
	case VRDMA_CM_OPEN:
	case VRDMA_CM_CLOSING:
		return true;
	default:
		return false;
	}
}

/* Returns the error number by which iw_cm knows a status of CONNECT_REPLY. */
int vrdma_cm_errno(u32 status)
{
	switch (status) {
	case VRDMA_CM_OK:
		return 0;
	case VRDMA_CM_REFUSED:
		return -ECONNREFUSED;
	case VRDMA_CM_TIMED_OUT:
		return -ETIMEDOUT;
	case VRDMA_CM_UNREACHABLE:
		return -EHOSTUNREACH;
	case VRDMA_CM_PROTOCOL:
		return -EPROTO;
	case VRDMA_CM_IN_USE:
		return -EADDRINUSE;
	default:
		return -ECONNRESET;
	}
}
