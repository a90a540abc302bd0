// SPDX-License-Identifier: GPL-2.0
/* Event queues. Completion events are handled in interrupt context, the others in a work item. */
#include <linux/slab.h>

#include "barrier.h"
#include "broken.h"
#include "cm.h"
#include "channel.h"
#include "cq.h"
#include "event.h"
#include "port.h"
#include "qp.h"
#include "srq.h"

#define EVENT_BATCH 16

/*
 * Takes up to @max events from @eq, and gives their buffers back to the device.
 *
 * Returns the number of events.
 */
static unsigned int eq_fetch(struct vrdma_eq *eq, struct vrdma_event *events, unsigned int max)
{
	struct scatterlist sg;
	struct vrdma_event *buf;
	unsigned int len, n = 0;
	bool notify = false;
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&eq->lock, flags);
	while (n < max && !err && (buf = virtqueue_get_buf(eq->vq, &len))) {
		events[n] = *buf;
		/* A short event is ignored, but counted, so that the loop is bounded. */
		if (len < sizeof(*buf))
			events[n].kind = cpu_to_le16(U16_MAX);
		n++;
		memset(buf, 0, sizeof(*buf));
		sg_init_one(&sg, buf, sizeof(*buf));
		err = virtqueue_add_inbuf(eq->vq, &sg, 1, buf, GFP_ATOMIC);
		notify = true;
	}
	if (notify)
		notify = vrdma_kick_prepare(eq->vq);
	spin_unlock_irqrestore(&eq->lock, flags);
	if (notify)
		virtqueue_notify(eq->vq);
	if (err)
		vrdma_set_broken(eq->dev, "an event queue does not work");
	return n;
}

static void eq_disable(struct vrdma_eq *eq)
{
	unsigned long flags;

	spin_lock_irqsave(&eq->lock, flags);
	virtqueue_disable_cb(eq->vq);
	spin_unlock_irqrestore(&eq->lock, flags);
}

/* Enables interrupts again. Returns false if there are events already. */
static bool eq_enable(struct vrdma_eq *eq)
{
	unsigned long flags;
	bool empty;

	spin_lock_irqsave(&eq->lock, flags);
	empty = vrdma_enable_cb(eq->vq);
	spin_unlock_irqrestore(&eq->lock, flags);
	return empty;
}

static void completion_event(struct vrdma_dev *dev, const struct vrdma_event *event)
{
	struct vrdma_cq *cq;

	if (event->kind != cpu_to_le16(VRDMA_EVENT_COMPLETION))
		return;
	/* A CQ that is being destroyed is not found, and nobody waits for its event. */
	cq = vrdma_cq_get(dev, le32_to_cpu(event->object));
	if (!cq)
		return;
	if (cq->ibcq.comp_handler)
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
	vrdma_cq_put(cq);
}

static void cq_event(struct vrdma_dev *dev, u32 cqn)
{
	struct vrdma_cq *cq = vrdma_cq_get(dev, cqn);
	struct ib_event event = { .device = &dev->ibdev, .event = IB_EVENT_CQ_ERR };

	if (!cq)
		return;
	ibdev_warn_ratelimited(&dev->ibdev, "CQ %u failed\n", cqn);
	event.element.cq = &cq->ibcq;
	if (cq->ibcq.event_handler)
		cq->ibcq.event_handler(&event, cq->ibcq.cq_context);
	vrdma_cq_put(cq);
}

static void qp_event(struct vrdma_dev *dev, u32 qpn, enum ib_event_type type)
{
	struct vrdma_qp *qp = vrdma_qp_get(dev, qpn);
	struct ib_event event = { .device = &dev->ibdev, .event = type };

	if (!qp)
		return;
	event.element.qp = &qp->ibqp;
	if (qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
	vrdma_qp_put(qp);
}

static void srq_event(struct vrdma_dev *dev, u32 srqn, enum ib_event_type type)
{
	struct vrdma_srq *srq = vrdma_srq_get(dev, srqn);
	struct ib_event event = { .device = &dev->ibdev, .event = type };

	if (!srq)
		return;
	event.element.srq = &srq->ibsrq;
	if (srq->ibsrq.event_handler)
		srq->ibsrq.event_handler(&event, srq->ibsrq.srq_context);
	vrdma_srq_put(srq);
}

/*
 * Handles a channel in which its process wrote something invalid.
 *
 * The device takes no more requests from it. Each QP of the process gets an event.
 */
static void channel_event(struct vrdma_dev *dev, u32 queue)
{
	struct vrdma_uctx *owner = NULL;
	unsigned long qpn;
	struct vrdma_qp *qp;
	unsigned int i;

	spin_lock(&dev->channel_lock);
	for (i = 1; i < dev->num_channels; i++) {
		if (dev->channels[i].vq->index == queue)
			owner = dev->channels[i].owner;
	}
	spin_unlock(&dev->channel_lock);

	if (queue == dev->channels[0].vq->index) {
		vrdma_set_broken(dev, "it can't read the kernel's channel");
		return;
	}
	if (!owner)
		return;
	ibdev_warn_ratelimited(&dev->ibdev, "channel %u is broken by its process\n", queue);
	/* @owner may be gone already; the pointer is only compared. */
	xa_for_each(&dev->qps, qpn, qp) {
		struct vrdma_qp *held = vrdma_qp_get(dev, qpn);
		bool mine = held && held->uctx == owner;

		if (held)
			vrdma_qp_put(held);
		if (mine)
			qp_event(dev, qpn, IB_EVENT_QP_FATAL);
	}
}

static void async_event(struct vrdma_dev *dev, const struct vrdma_event *event)
{
	u32 object = le32_to_cpu(event->object);

	switch (le16_to_cpu(event->kind)) {
	case VRDMA_EVENT_CQ_ERR:
		cq_event(dev, object);
		break;
	case VRDMA_EVENT_QP_FATAL:
		qp_event(dev, object, IB_EVENT_QP_FATAL);
		break;
	case VRDMA_EVENT_QP_REQ_ERR:
		qp_event(dev, object, IB_EVENT_QP_REQ_ERR);
		break;
	case VRDMA_EVENT_QP_ACCESS_ERR:
		qp_event(dev, object, IB_EVENT_QP_ACCESS_ERR);
		break;
	case VRDMA_EVENT_COMM_EST:
		qp_event(dev, object, IB_EVENT_COMM_EST);
		break;
	case VRDMA_EVENT_SQ_DRAINED:
		qp_event(dev, object, IB_EVENT_SQ_DRAINED);
		break;
	case VRDMA_EVENT_QP_LAST_WQE_REACHED:
		qp_event(dev, object, IB_EVENT_QP_LAST_WQE_REACHED);
		break;
	case VRDMA_EVENT_SRQ_LIMIT_REACHED:
		srq_event(dev, object, IB_EVENT_SRQ_LIMIT_REACHED);
		break;
	case VRDMA_EVENT_SRQ_ERR:
		srq_event(dev, object, IB_EVENT_SRQ_ERR);
		break;
	case VRDMA_EVENT_PORT_ACTIVE:
		vrdma_link_event(dev, IB_PORT_ACTIVE);
		break;
	case VRDMA_EVENT_PORT_ERR:
		vrdma_link_event(dev, IB_PORT_DOWN);
		break;
	case VRDMA_EVENT_DEVICE_FATAL:
		vrdma_set_broken(dev, "it says so");
		break;
	case VRDMA_EVENT_CM:
		vrdma_cm_events(dev);
		break;
	case VRDMA_EVENT_CHANNEL_ERR:
		channel_event(dev, object);
		break;
	default:
		/* A newer device may have more kinds of events. */
		break;
	}
}

static bool eq_is_async(const struct vrdma_eq *eq)
{
	return eq == &eq->dev->eqs[0];
}

/* Handles up to @budget events, rounded up to whole batches. Returns false if there may be more. */
static bool eq_handle(struct vrdma_eq *eq, unsigned int budget)
{
	struct vrdma_event events[EVENT_BATCH];
	unsigned int i, n, done = 0;

	do {
		n = eq_fetch(eq, events, EVENT_BATCH);
		for (i = 0; i < n; i++) {
			if (eq_is_async(eq))
				async_event(eq->dev, &events[i]);
			else
				completion_event(eq->dev, &events[i]);
		}
		done += n;
	} while (n == EVENT_BATCH && done < budget);
	return n < EVENT_BATCH;
}

static void eq_work(struct work_struct *work)
{
	struct vrdma_eq *eq = container_of(work, struct vrdma_eq, work);

	if (!eq_handle(eq, eq->num) || !eq_enable(eq))
		queue_work(eq->dev->wq, &eq->work);
}

static struct vrdma_eq *eq_of(struct virtqueue *vq)
{
	struct vrdma_dev *dev = vq->vdev->priv;

	return &dev->eqs[vq->index - VRDMA_QUEUE_ASYNC_EVENTS];
}

/* Queues the work item, because handlers of asynchronous events may sleep. */
void vrdma_async_interrupt(struct virtqueue *vq)
{
	struct vrdma_eq *eq = eq_of(vq);

	eq_disable(eq);
	queue_work(eq->dev->wq, &eq->work);
}

/* Handles a bounded number of events: the device could fill buffers as fast as it gets them. */
void vrdma_comp_interrupt(struct virtqueue *vq)
{
	struct vrdma_eq *eq = eq_of(vq);

	eq_disable(eq);
	if (!eq_handle(eq, eq->num) || !eq_enable(eq)) {
		eq_disable(eq);
		queue_work(eq->dev->wq, &eq->work);
	}
}

int vrdma_eqs_init(struct vrdma_dev *dev, struct virtqueue *vqs[], unsigned int num)
{
	unsigned int i;

	dev->eqs = kcalloc(num, sizeof(*dev->eqs), GFP_KERNEL);
	if (!dev->eqs)
		return -ENOMEM;
	dev->num_eqs = num;
	for (i = 0; i < num; i++) {
		struct vrdma_eq *eq = &dev->eqs[i];

		eq->dev = dev;
		spin_lock_init(&eq->lock);
		INIT_WORK(&eq->work, eq_work);
		eq->num = virtqueue_get_vring_size(vqs[i]);
		eq->bufs = kcalloc(eq->num, sizeof(*eq->bufs), GFP_KERNEL);
		if (!eq->bufs)
			return -ENOMEM;
		eq->vq = vqs[i];
	}
	return 0;
}

/* Gives all buffers to the device, which has to be ready. */
int vrdma_eqs_fill(struct vrdma_dev *dev)
{
	struct scatterlist sg;
	unsigned long flags;
	unsigned int i, j;
	int err = 0;

	for (i = 0; i < dev->num_eqs && !err; i++) {
		struct vrdma_eq *eq = &dev->eqs[i];

		spin_lock_irqsave(&eq->lock, flags);
		for (j = 0; j < eq->num && !err; j++) {
			sg_init_one(&sg, &eq->bufs[j], sizeof(eq->bufs[j]));
			err = virtqueue_add_inbuf(eq->vq, &sg, 1, &eq->bufs[j], GFP_ATOMIC);
		}
		if (vrdma_kick_prepare(eq->vq))
			virtqueue_notify(eq->vq);
		spin_unlock_irqrestore(&eq->lock, flags);
	}
	return err;
}

/* Waits until the last events have been handled. Called after the device has been reset. */
void vrdma_eqs_cancel(struct vrdma_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->num_eqs; i++) {
		if (dev->eqs[i].work.func)
			cancel_work_sync(&dev->eqs[i].work);
	}
}

/* Called after the device has been reset. */
void vrdma_eqs_cleanup(struct vrdma_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->num_eqs; i++) {
		struct vrdma_eq *eq = &dev->eqs[i];

		if (eq->vq)
			while (virtqueue_detach_unused_buf(eq->vq))
				;
		kfree(eq->bufs);
	}
	kfree(dev->eqs);
	dev->eqs = NULL;
	dev->num_eqs = 0;
}
