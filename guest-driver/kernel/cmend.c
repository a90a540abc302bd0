// SPDX-License-Identifier: GPL-2.0
/*
 * This guest's ends of iWARP connections: what each one holds, and for how long.
 *
 * cmstate.c decides what an event does to a connection. Everything here runs under cm_lock.
 */
#include <linux/net.h>
#include <linux/slab.h>
#include <rdma/iw_cm.h>

#include "broken.h"
#include "cmaddr.h"
#include "cmcmds.h"
#include "cmend.h"
#include "objects.h"

/*
 * How long the device, its peer or a program may take to answer.
 *
 * The device gives up earlier: after at most 20 s for a connection, and 60 s for the peer's answer.
 * The limit here is for a device that does not. Without it, a process that waits for iw_cm could
 * not be killed, and the driver could not be removed.
 */
#define ANSWER_TIME (90 * HZ)

struct vrdma_end *vrdma_end_alloc(enum vrdma_cm_state state)
{
	struct vrdma_end *end = kzalloc(sizeof(*end), GFP_KERNEL);

	if (end)
		end->state = state;
	return end;
}

/* Drops everything that iw_cm has of @end. iw_cm knows that it is over, or does not want it. */
static void leave_iw_cm(struct vrdma_dev *dev, struct vrdma_end *end)
{
	if (end->request)
		xa_erase(&dev->cm_requests, end->request);
	if (end->qp)
		end->qp->end = NULL;
	if (end->cm_id)
		end->cm_id->rem_ref(end->cm_id);
	end->request = 0;
	end->qp = NULL;
	end->cm_id = NULL;
}

/* Frees an end that the device does not have any more, or never had. */
void vrdma_end_free(struct vrdma_dev *dev, struct vrdma_end *end)
{
	leave_iw_cm(dev, end);
	if (end->port)
		vrdma_release_port(end->port);
	kfree(end);
}

static void limit_time(struct vrdma_dev *dev, struct vrdma_end *end)
{
	if (!vrdma_cm_is_limited(end->state))
		return;
	end->expires = jiffies + ANSWER_TIME;
	queue_delayed_work(dev->wq, &dev->cm_expire_work, ANSWER_TIME);
}

/**
 * vrdma_end_insert() - add an end to which the device has given a number
 * @dev: the device
 * @end: the end
 *
 * After an error the device does not have the connection any more, and the caller frees @end.
 */
int vrdma_end_insert(struct vrdma_dev *dev, struct vrdma_end *end)
{
	int err = xa_insert(&dev->cm_ends, end->number, end, GFP_KERNEL);

	if (err == -EBUSY) {
		vrdma_set_broken(dev, "it has two connections of the same number");
		return -EIO;
	}
	if (err)
		vrdma_cmd_cm_release(dev, end->number);
	else
		limit_time(dev, end);
	return err;
}

/*
 * Gives @end to iw_cm, which is told of all events until the end is over. @qp is the QP to connect.
 */
void vrdma_end_use(struct vrdma_dev *dev, struct vrdma_end *end, enum vrdma_cm_state state,
		   struct iw_cm_id *cm_id, struct vrdma_qp *qp)
{
	end->state = state;
	end->cm_id = cm_id;
	cm_id->add_ref(cm_id);
	end->qp = qp;
	qp->end = end;
	limit_time(dev, end);
}

/* Tells iw_cm how an attempt to connect ended. Returns an error if iw_cm has no memory for it. */
static int tell_reply(struct vrdma_end *end, const struct iw_cm_event *news)
{
	struct iw_cm_id *cm_id = end->cm_id;
	struct iw_cm_event event = {
		.event = IW_CM_EVENT_CONNECT_REPLY,
		.status = news->status,
		/* The addresses are the ones that iw_cm asked for, whatever the device reports. */
		.local_addr = news->status ? cm_id->local_addr : cm_id->m_local_addr,
		.remote_addr = news->status ? cm_id->remote_addr : cm_id->m_remote_addr,
		.private_data = news->private_data,
		.private_data_len = news->private_data_len,
		.ird = news->ird,
		.ord = news->ord,
	};

	if (event.status)
		/*
		 * The text is in iw_cm's module. So that module stays loaded as long as this one,
		 * which also calls the event handlers of its cm_ids.
		 */
		ibdev_dbg(cm_id->device, "connection %u: %s\n", end->number,
			  iwcm_reject_msg(event.status));
	return cm_id->event_handler(cm_id, &event);
}

static void tell(struct vrdma_end *end, unsigned int what, const struct iw_cm_event *news)
{
	/* iw_cm copies private data of replies and requests only, so these events have none. */
	struct iw_cm_event event = {};

	if (what & VRDMA_CM_TELL_ESTABLISHED) {
		event.event = IW_CM_EVENT_ESTABLISHED;
		event.ird = news->ird;
		event.ord = news->ord;
		end->cm_id->event_handler(end->cm_id, &event);
	}
	if (what & VRDMA_CM_TELL_DISCONNECT) {
		event.event = IW_CM_EVENT_DISCONNECT;
		end->cm_id->event_handler(end->cm_id, &event);
	}
	if (what & VRDMA_CM_TELL_CLOSE) {
		event.event = IW_CM_EVENT_CLOSE;
		end->cm_id->event_handler(end->cm_id, &event);
	}
}

/**
 * vrdma_end_step() - apply an event to a connection
 * @dev: the device
 * @end: this end of the connection; it may be freed
 * @what: the event
 * @news: status, private data, IRD and ORD for iw_cm, if it is told
 */
void vrdma_end_step(struct vrdma_dev *dev, struct vrdma_end *end, enum vrdma_cm_what what,
		    const struct iw_cm_event *news)
{
	struct vrdma_cm_step step = vrdma_cm_step(end->state, what);
	const struct iw_cm_event no_memory = { .status = -ENOMEM };

	if (step.next == end->state)
		return;
	if ((step.tell & VRDMA_CM_TELL_REPLY) && tell_reply(end, news)) {
		/* Without private data, iw_cm needs no memory. */
		tell_reply(end, &no_memory);
		step.next = VRDMA_CM_OVER;
	}
	tell(end, step.tell, news);
	end->state = step.next;
	if (!vrdma_cm_has_id(end->state))
		leave_iw_cm(dev, end);
	if (end->state != VRDMA_CM_OVER) {
		limit_time(dev, end);
		return;
	}
	xa_erase(&dev->cm_ends, end->number);
	vrdma_cmd_cm_release(dev, end->number);
	vrdma_end_free(dev, end);
}

/* Ends all connections. */
void vrdma_ends_fail(struct vrdma_dev *dev)
{
	const struct iw_cm_event news = { .status = -ECONNRESET };
	struct vrdma_end *end;
	unsigned long number;

	xa_for_each(&dev->cm_ends, number, end)
		vrdma_end_step(dev, end, VRDMA_CM_FAILED, &news);
}

/* Gives up connections that have waited too long for an answer. */
static void expire_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, cm_expire_work.work);
	const struct iw_cm_event news = { .status = -ETIMEDOUT };
	struct vrdma_end *end;
	unsigned long number;
	bool more = false;

	mutex_lock(&dev->cm_lock);
	xa_for_each(&dev->cm_ends, number, end) {
		if (!vrdma_cm_is_limited(end->state))
			continue;
		if (time_before(jiffies, end->expires))
			more = true;
		else
			vrdma_end_step(dev, end, VRDMA_CM_FAILED, &news);
	}
	mutex_unlock(&dev->cm_lock);
	if (more)
		queue_delayed_work(dev->wq, &dev->cm_expire_work, ANSWER_TIME / 8);
}

void vrdma_ends_init(struct vrdma_dev *dev)
{
	mutex_init(&dev->cm_lock);
	xa_init(&dev->cm_ends);
	xa_init_flags(&dev->cm_requests, XA_FLAGS_ALLOC1);
	INIT_DELAYED_WORK(&dev->cm_expire_work, expire_work);
}

/* Called after the device has been reset. */
void vrdma_ends_cancel(struct vrdma_dev *dev)
{
	cancel_delayed_work_sync(&dev->cm_expire_work);
}

/* Called after the device has been reset, when it has no users any more. */
void vrdma_ends_cleanup(struct vrdma_dev *dev)
{
	struct vrdma_end *end;
	unsigned long number;

	xa_for_each(&dev->cm_ends, number, end)
		vrdma_end_free(dev, end);
	xa_destroy(&dev->cm_ends);
	xa_destroy(&dev->cm_requests);
}
