// SPDX-License-Identifier: GPL-2.0
/*
 * Connections of iWARP: what iw_cm asks for goes to the device, which has the TCP, and what happens
 * to them goes back. The guest's own TCP knows of their ports by a socket that is bound to each.
 */
#include <linux/net.h>
#include <linux/slab.h>
#include <rdma/iw_cm.h>

#include "broken.h"
#include "cm.h"
#include "cmaddr.h"
#include "cmcmds.h"
#include "objects.h"
#include "qp.h"

enum end_state { END_LISTENS, END_CONNECTS, END_REQUESTED, END_ACCEPTED, END_OPEN };

/**
 * struct vrdma_end - a listener or a connection that the device has
 * @number: its number there
 * @state: how far it is
 * @cm_id: whose it is, with a reference; NULL of one that was requested and not accepted
 * @port: a socket that reserves its port, or NULL
 */
struct vrdma_end {
	u32 number;
	enum end_state state;
	struct iw_cm_id *cm_id;
	struct socket *port;
};

/* One that reserves the port of @cm_id. */
static struct vrdma_end *end_alloc(struct iw_cm_id *cm_id, enum end_state state)
{
	struct vrdma_end *end = kzalloc(sizeof(*end), GFP_KERNEL);
	int err;

	if (!end)
		return ERR_PTR(-ENOMEM);
	end->state = state;
	end->cm_id = cm_id;
	err = vrdma_reserve_port(&cm_id->m_local_addr, &end->port);
	if (err) {
		kfree(end);
		return ERR_PTR(err);
	}
	cm_id->add_ref(cm_id);
	cm_id->provider_data = end;
	return end;
}

static void end_free(struct vrdma_end *end)
{
	if (end->cm_id) {
		end->cm_id->provider_data = NULL;
		end->cm_id->rem_ref(end->cm_id);
	}
	if (end->port)
		sock_release(end->port);
	kfree(end);
}

/* Whatever the device thinks of it, it is over. */
static void end_release(struct vrdma_dev *dev, struct vrdma_end *end)
{
	xa_erase(&dev->cm_ends, end->number);
	vrdma_cmd_cm_release(dev, end->number);
	end_free(end);
}

static int data_len(size_t len)
{
	return len > VRDMA_CM_MAX_PRIVATE_DATA ? -EINVAL : 0;
}

struct ib_qp *vrdma_iw_get_qp(struct ib_device *ibdev, int qpn)
{
	struct vrdma_qp *qp = vrdma_qp_get(to_vdev(ibdev), qpn);

	/* Who asks takes a reference of its own, and keeps the QP from being destroyed meanwhile. */
	if (qp)
		vrdma_qp_put(qp);
	return qp ? &qp->ibqp : NULL;
}

void vrdma_iw_add_ref(struct ib_qp *ibqp)
{
	refcount_inc(&to_vqp(ibqp)->ref);
}

void vrdma_iw_rem_ref(struct ib_qp *ibqp)
{
	vrdma_qp_put(to_vqp(ibqp));
}

int vrdma_iw_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_cm_connect_req *req;
	struct vrdma_end *end;
	int err;

	err = data_len(param->private_data_len);
	if (err)
		return err;
	if (cm_id->m_local_addr.ss_family != cm_id->m_remote_addr.ss_family)
		return -EINVAL;
	req = kzalloc(sizeof(*req), GFP_KERNEL);
	if (!req)
		return -ENOMEM;
	req->qpn = cpu_to_le32(param->qpn);
	req->flags = cpu_to_le32(VRDMA_CM_PEER_TO_PEER);
	vrdma_put_address(&cm_id->m_local_addr, req->local_addr, &req->local_port);
	vrdma_put_address(&cm_id->m_remote_addr, req->remote_addr, &req->remote_port);
	req->ird = cpu_to_le16(min(param->ird, dev->caps.max_dest_rd_atomic));
	req->ord = cpu_to_le16(min(param->ord, dev->caps.max_rd_atomic));
	req->private_data_len = cpu_to_le16(param->private_data_len);
	memcpy(req->private_data, param->private_data, param->private_data_len);

	/* No event is handled before its connection is known. */
	mutex_lock(&dev->cm_lock);
	end = end_alloc(cm_id, END_CONNECTS);
	err = PTR_ERR_OR_ZERO(end);
	if (!err) {
		err = vrdma_cmd_cm_connect(dev, req, &end->number);
		if (!err) {
			err = xa_insert(&dev->cm_ends, end->number, end, GFP_KERNEL);
			if (err)
				vrdma_cmd_cm_release(dev, end->number);
		}
		if (err)
			end_free(end);
	}
	mutex_unlock(&dev->cm_lock);
	kfree(req);
	return err;
}

int vrdma_iw_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_cm_accept_req *req;
	struct vrdma_end *end;
	int err;

	err = data_len(param->private_data_len);
	req = err ? NULL : kzalloc(sizeof(*req), GFP_KERNEL);
	mutex_lock(&dev->cm_lock);
	end = cm_id->provider_data;
	if (!end) {
		/* The device failed. */
		err = -ECONNRESET;
	} else if (!req) {
		err = err ?: -ENOMEM;
		end_release(dev, end);
		cm_id->provider_data = NULL;
	} else {
		req->connection = cpu_to_le32(end->number);
		req->qpn = cpu_to_le32(param->qpn);
		req->ird = cpu_to_le16(min(param->ird, dev->caps.max_dest_rd_atomic));
		req->ord = cpu_to_le16(min(param->ord, dev->caps.max_rd_atomic));
		req->private_data_len = cpu_to_le16(param->private_data_len);
		memcpy(req->private_data, param->private_data, param->private_data_len);
		err = vrdma_cmd_cm_accept(dev, req);
		if (err) {
			/* An error precludes events. */
			end_release(dev, end);
			cm_id->provider_data = NULL;
		} else {
			end->state = END_ACCEPTED;
			end->cm_id = cm_id;
			cm_id->add_ref(cm_id);
		}
	}
	mutex_unlock(&dev->cm_lock);
	kfree(req);
	return err;
}

int vrdma_iw_reject(struct iw_cm_id *cm_id, const void *data, u8 len)
{
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_cm_reject_req *req = kzalloc(sizeof(*req), GFP_KERNEL);
	struct vrdma_end *end;

	mutex_lock(&dev->cm_lock);
	end = cm_id->provider_data;
	cm_id->provider_data = NULL;
	if (end && req) {
		req->connection = cpu_to_le32(end->number);
		req->private_data_len = cpu_to_le16(len);
		memcpy(req->private_data, data, len);
		vrdma_cmd_cm_reject(dev, req);
		xa_erase(&dev->cm_ends, end->number);
		end_free(end);
	} else if (end) {
		end_release(dev, end);
	}
	mutex_unlock(&dev->cm_lock);
	kfree(req);
	return 0;
}

int vrdma_iw_create_listen(struct iw_cm_id *cm_id, int backlog)
{
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_cm_listen_req req = { .backlog = cpu_to_le32(max(backlog, 1)) };
	struct vrdma_end *end;
	int err;

	vrdma_put_address(&cm_id->m_local_addr, req.addr, &req.port);
	mutex_lock(&dev->cm_lock);
	end = end_alloc(cm_id, END_LISTENS);
	err = PTR_ERR_OR_ZERO(end);
	if (!err) {
		err = vrdma_cmd_cm_listen(dev, &req, &end->number);
		if (!err) {
			err = xa_insert(&dev->cm_ends, end->number, end, GFP_KERNEL);
			if (err)
				vrdma_cmd_cm_close_listener(dev, end->number);
		}
		if (err)
			end_free(end);
	}
	mutex_unlock(&dev->cm_lock);
	return err == -EBUSY ? -EADDRINUSE : err;
}

int vrdma_iw_destroy_listen(struct iw_cm_id *cm_id)
{
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_end *end;

	mutex_lock(&dev->cm_lock);
	end = cm_id->provider_data;
	if (end) {
		xa_erase(&dev->cm_ends, end->number);
		vrdma_cmd_cm_close_listener(dev, end->number);
		end_free(end);
	}
	mutex_unlock(&dev->cm_lock);
	return 0;
}

static int status_to_errno(u32 status)
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
	case VRDMA_CM_IN_USE:
		return -EADDRINUSE;
	default:
		return -ECONNRESET;
	}
}

/* A peer wants a connection. What iw_cm does not take is refused. */
static void requested(struct vrdma_dev *dev, struct iw_cm_event *event, u32 listener, u32 number)
{
	struct vrdma_end *of = xa_load(&dev->cm_ends, listener);
	struct vrdma_end *end = kzalloc(sizeof(*end), GFP_KERNEL);
	int err = -ENOMEM;

	if (end) {
		end->number = number;
		end->state = END_REQUESTED;
		err = xa_insert(&dev->cm_ends, number, end, GFP_KERNEL);
	}
	if (err) {
		kfree(end);
		vrdma_cmd_cm_release(dev, number);
		return;
	}
	event->provider_data = end;
	/* The listener may be gone by now. */
	if (!of || of->state != END_LISTENS || of->cm_id->event_handler(of->cm_id, event))
		end_release(dev, end);
}

/* Tells iw_cm what happened to a connection; @event has the rest. */
static void tell(struct vrdma_dev *dev, struct vrdma_end *end, struct iw_cm_event *event)
{
	bool over = event->event == IW_CM_EVENT_CLOSE ||
		    (event->event == IW_CM_EVENT_CONNECT_REPLY && event->status);

	end->cm_id->event_handler(end->cm_id, event);
	if (over)
		end_release(dev, end);
	else
		end->state = END_OPEN;
}

static void handle_event(struct vrdma_dev *dev, struct vrdma_cm_event_resp *resp)
{
	u32 kind = le32_to_cpu(resp->kind), number = le32_to_cpu(resp->connection);
	struct iw_cm_event event = {
		/* The numbers are the same. */
		.event = kind,
		.private_data = resp->private_data,
		/* iw_cm has no room for more. */
		.private_data_len = min(le16_to_cpu(resp->private_data_len), U8_MAX),
		/* To programs they are the peer's. */
		.ird = min(le16_to_cpu(resp->ord), U8_MAX),
		.ord = min(le16_to_cpu(resp->ird), U8_MAX),
	};
	struct vrdma_end *end;

	vrdma_get_address(&event.local_addr, resp->local_addr, resp->local_port);
	vrdma_get_address(&event.remote_addr, resp->remote_addr, resp->remote_port);
	if (kind == VRDMA_CM_EVENT_CONNECT_REQUEST) {
		requested(dev, &event, le32_to_cpu(resp->listener), number);
		return;
	}
	end = xa_load(&dev->cm_ends, number);
	if (!end || !end->cm_id || end->state == END_LISTENS || kind > VRDMA_CM_EVENT_CLOSE)
		return;
	if (kind == VRDMA_CM_EVENT_CONNECT_REPLY)
		event.status = status_to_errno(le32_to_cpu(resp->status));
	tell(dev, end, &event);
}

/* The device has told that it has something to tell. */
void vrdma_cm_events(struct vrdma_dev *dev)
{
	struct vrdma_cm_event_resp *resp = kzalloc(sizeof(*resp), GFP_KERNEL);
	int err;

	if (!resp) {
		/* Nobody would ask again. */
		vrdma_set_broken(dev, "there is no memory for its events");
		return;
	}
	do {
		mutex_lock(&dev->cm_lock);
		err = vrdma_cmd_cm_get_event(dev, resp);
		if (!err && resp->kind)
			handle_event(dev, resp);
		mutex_unlock(&dev->cm_lock);
	} while (!err && resp->kind);
	kfree(resp);
}

/* The device is broken: all connections are over. */
void vrdma_cm_fail(struct vrdma_dev *dev)
{
	struct vrdma_end *end;
	unsigned long number;

	mutex_lock(&dev->cm_lock);
	xa_for_each(&dev->cm_ends, number, end) {
		struct iw_cm_event event = { .event = IW_CM_EVENT_CLOSE };

		/* iw_cm takes a listener back by itself, and rejects what was requested. */
		if (end->state == END_LISTENS || end->state == END_REQUESTED)
			continue;
		if (end->state == END_CONNECTS) {
			event.event = IW_CM_EVENT_CONNECT_REPLY;
			event.status = -ECONNRESET;
		} else if (end->state == END_ACCEPTED) {
			/* iw_cm knows no end before the beginning. */
			event.event = IW_CM_EVENT_ESTABLISHED;
			end->cm_id->event_handler(end->cm_id, &event);
			event.event = IW_CM_EVENT_CLOSE;
		}
		tell(dev, end, &event);
	}
	mutex_unlock(&dev->cm_lock);
}

void vrdma_cm_init(struct vrdma_dev *dev)
{
	mutex_init(&dev->cm_lock);
	xa_init(&dev->cm_ends);
}

/* The device has been reset, and has no users any more. */
void vrdma_cm_cleanup(struct vrdma_dev *dev)
{
	struct vrdma_end *end;
	unsigned long number;

	xa_for_each(&dev->cm_ends, number, end)
		end_free(end);
	xa_destroy(&dev->cm_ends);
}
