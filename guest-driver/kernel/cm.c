// SPDX-License-Identifier: GPL-2.0
/*
 * iWARP connections: requests of iw_cm go to the device, which has the TCP, and its events go back.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <rdma/iw_cm.h>

#include "cm.h"
#include "cmaddr.h"
#include "cmcmds.h"
#include "cmend.h"
#include "cmlisten.h"
#include "cmroute.h"
#include "objects.h"

/* Most events that are handled in one run of the work item. */
#define EVENT_BATCH 64

static u16 depth(u32 wanted, u32 most)
{
	return min3(wanted, most, (u32)VRDMA_CM_MAX_DEPTH);
}

static struct vrdma_cm_connect_req *make_connect(struct vrdma_dev *dev,
						 const struct iw_cm_id *cm_id,
						 const struct iw_cm_conn_param *param)
{
	struct vrdma_cm_connect_req *req = kzalloc(sizeof(*req), GFP_KERNEL);

	if (!req)
		return NULL;
	req->qpn = cpu_to_le32(param->qpn);
	req->flags = cpu_to_le32(VRDMA_CM_PEER_TO_PEER);
	vrdma_put_address(&cm_id->m_local_addr, req->local_addr, &req->local_port);
	vrdma_put_address(&cm_id->m_remote_addr, req->remote_addr, &req->remote_port);
	req->traffic_class = vrdma_traffic_class(dev, cm_id);
	req->ird = cpu_to_le16(depth(param->ird, dev->caps.max_dest_rd_atomic));
	req->ord = cpu_to_le16(depth(param->ord, dev->caps.max_rd_atomic));
	req->private_data_len = cpu_to_le16(param->private_data_len);
	memcpy(req->private_data, param->private_data, param->private_data_len);
	return req;
}

/*
 * Whether the caller may connect the QP.
 *
 * rdma_cm passes on any QP number that a process names in rdma_connect() or rdma_accept(). So a QP
 * of a process is connected by that process only.
 *
 * A QP of the kernel is connected by the task that has just moved it to RTR. rdma_cm does this in
 * the same call, and no process can do it. Some users of the kernel connect in a system call of a
 * process: SRP when a target is added, 9P when a file system is mounted. Others connect in kernel
 * threads.
 */
static bool may_connect(struct vrdma_qp *qp)
{
	const struct rdma_restrack_entry *res = &qp->ibqp.res;

	if (res->user)
		return same_thread_group(res->task, current);
	return cmpxchg(&qp->connecter, current, NULL) == current || (current->flags & PF_KTHREAD);
}

/*
 * Finds the QP to connect, and sets @err.
 *
 * The QP is not freed while cm_lock is held: its destroyer removes it from the table before it
 * calls vrdma_cm_qp_ended().
 */
static struct vrdma_qp *find_qp(struct vrdma_dev *dev, u32 qpn, int *err)
{
	struct vrdma_qp *qp = xa_load(&dev->qps, qpn);

	*err = !qp ? -EINVAL : !may_connect(qp) ? -EPERM : qp->end ? -EISCONN : 0;
	return qp;
}

/* Connects under cm_lock, so that no event is handled before its connection is known. */
static int connect_locked(struct vrdma_dev *dev, struct iw_cm_id *cm_id,
			  const struct vrdma_cm_connect_req *req)
{
	struct vrdma_end *end;
	struct vrdma_qp *qp;
	int err;

	if (dev->cm_stopped)
		return -ENODEV;
	qp = find_qp(dev, le32_to_cpu(req->qpn), &err);
	if (err)
		return err;
	end = vrdma_end_alloc(VRDMA_CM_CONNECTS);
	if (!end)
		return -ENOMEM;
	err = vrdma_reserve_port(vrdma_scope_of(cm_id).net, &cm_id->m_local_addr, &end->port);
	if (!err) {
		err = vrdma_cmd_cm_connect(dev, req, &end->number);
		/* The QP has no connection, as find_qp() checked. So address or port are in use. */
		if (err == -EBUSY)
			err = -EADDRINUSE;
	}
	if (!err)
		err = vrdma_end_insert(dev, end);
	if (err)
		vrdma_end_free(dev, end);
	else
		vrdma_end_use(dev, end, VRDMA_CM_CONNECTS, cm_id, qp);
	return err;
}

int vrdma_iw_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct vrdma_cm_scope scope = vrdma_scope_of(cm_id);
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_cm_connect_req *req;
	int err;

	if (param->private_data_len > VRDMA_CM_MAX_PRIVATE_DATA ||
	    cm_id->m_local_addr.ss_family != cm_id->m_remote_addr.ss_family)
		return -EINVAL;
	req = make_connect(dev, cm_id, param);
	if (!req)
		return -ENOMEM;
	err = 0;
	if (dev->caps.device_cap & VRDMA_CAP_NEXT_HOP)
		err = vrdma_find_next_hop(dev, &scope, &cm_id->m_local_addr, &cm_id->m_remote_addr,
					  req);
	if (!err) {
		mutex_lock(&dev->cm_lock);
		err = connect_locked(dev, cm_id, req);
		mutex_unlock(&dev->cm_lock);
	}
	kfree(req);
	return err;
}

/*
 * Returns the connection that iw_cm accepts or rejects by @cm_id, or NULL if it is over already.
 *
 * The connection is known by a number, not by its address. iw_cm may have dropped the event of
 * another connection that was at the same address in memory.
 */
static struct vrdma_end *take_request(struct vrdma_dev *dev, struct iw_cm_id *cm_id)
{
	unsigned long request = (unsigned long)cm_id->provider_data;

	cm_id->provider_data = NULL;
	return request ? xa_load(&dev->cm_requests, request) : NULL;
}

static int accept_end(struct vrdma_dev *dev, struct vrdma_end *end, struct iw_cm_id *cm_id,
		      struct vrdma_cm_accept_req *req)
{
	struct vrdma_qp *qp;
	int err;

	qp = find_qp(dev, le32_to_cpu(req->qpn), &err);
	if (err)
		return err;
	req->connection = cpu_to_le32(end->number);
	err = vrdma_cmd_cm_accept(dev, req);
	if (err)
		return err;
	xa_erase(&dev->cm_requests, end->request);
	end->request = 0;
	vrdma_end_use(dev, end, VRDMA_CM_ACCEPTED, cm_id, qp);
	return 0;
}

int vrdma_iw_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_cm_accept_req *req = NULL;
	struct vrdma_end *end;
	int err = -EINVAL;

	if (param->private_data_len <= VRDMA_CM_MAX_PRIVATE_DATA) {
		err = -ENOMEM;
		req = kzalloc(sizeof(*req), GFP_KERNEL);
	}
	mutex_lock(&dev->cm_lock);
	end = take_request(dev, cm_id);
	if (!end) {
		err = -ECONNRESET;
	} else if (req) {
		req->qpn = cpu_to_le32(param->qpn);
		req->ird = cpu_to_le16(depth(param->ird, dev->caps.max_dest_rd_atomic));
		req->ord = cpu_to_le16(depth(param->ord, dev->caps.max_rd_atomic));
		req->private_data_len = cpu_to_le16(param->private_data_len);
		memcpy(req->private_data, param->private_data, param->private_data_len);
		err = accept_end(dev, end, cm_id, req);
	}
	/* After an error iw_cm expects no event, and asks for nothing more. */
	if (end && err)
		vrdma_end_step(dev, end, VRDMA_CM_FAILED, NULL);
	mutex_unlock(&dev->cm_lock);
	kfree(req);
	return err;
}

int vrdma_iw_reject(struct iw_cm_id *cm_id, const void *data, u8 len)
{
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_cm_reject_req *req = kzalloc(sizeof(*req), GFP_KERNEL);
	bool pending = false;
	struct vrdma_end *end;

	mutex_lock(&dev->cm_lock);
	end = take_request(dev, cm_id);
	if (end && req) {
		req->connection = cpu_to_le32(end->number);
		req->private_data_len = cpu_to_le16(len);
		memcpy(req->private_data, data, len);
		/* A stalled device executes the rejection when it resumes. */
		if (!vrdma_cmd_cm_reject(dev, req, &pending) || pending) {
			xa_erase(&dev->cm_ends, end->number);
			vrdma_end_free(dev, end);
			end = NULL;
		}
	}
	if (end)
		vrdma_end_step(dev, end, VRDMA_CM_FAILED, NULL);
	mutex_unlock(&dev->cm_lock);
	kfree(req);
	return 0;
}

static void handle_event(struct vrdma_dev *dev, struct vrdma_cm_event_resp *resp)
{
	u32 kind = le32_to_cpu(resp->kind), number = le32_to_cpu(resp->connection);
	u32 status = le32_to_cpu(resp->status);
	enum vrdma_cm_what what = vrdma_cm_what(kind, status);
	struct vrdma_end *end = xa_load(&dev->cm_ends, number);
	struct iw_cm_event event = {
		.event = IW_CM_EVENT_CONNECT_REQUEST,
		.private_data = resp->private_data,
		/* iw_cm has no room for more. */
		.private_data_len = min_t(u16, le16_to_cpu(resp->private_data_len), U8_MAX),
		/* Programs see these values from the side of the peer. */
		.ird = min_t(u16, le16_to_cpu(resp->ord), U8_MAX),
		.ord = min_t(u16, le16_to_cpu(resp->ird), U8_MAX),
	};

	if (kind == VRDMA_CM_EVENT_CONNECT_REQUEST) {
		vrdma_get_address(&event.local_addr, resp->local_addr, resp->local_port);
		vrdma_get_address(&event.remote_addr, resp->remote_addr, resp->remote_port);
		vrdma_cm_requested(dev, &event, number, le32_to_cpu(resp->listener));
	} else if (end) {
		/* If the connection ends instead of a reply, iw_cm gets the end as its reply. */
		if (what != VRDMA_CM_CONNECTED)
			event.status = what == VRDMA_CM_NOT_CONNECTED ? vrdma_cm_errno(status) :
									-ECONNRESET;
		vrdma_end_step(dev, end, what, &event);
	}
}

/*
 * Fetches connection events from the device.
 *
 * Waits for a stalled device, so that no event is lost. cm_lock is not held meanwhile.
 */
static void event_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, cm_event_work.work);
	struct vrdma_cm_event_resp *resp = &dev->cm_event;
	int i, err;

	for (i = 0; i < EVENT_BATCH && !READ_ONCE(dev->removing); i++) {
		err = vrdma_cmd_cm_get_event(dev, resp);
		if (err == -ENOMEM) {
			/* The device does not announce the event again. */
			queue_delayed_work(dev->wq, &dev->cm_event_work, HZ);
			return;
		}
		if (err || resp->kind == cpu_to_le32(VRDMA_CM_EVENT_NONE))
			return;
		mutex_lock(&dev->cm_lock);
		handle_event(dev, resp);
		mutex_unlock(&dev->cm_lock);
	}
	if (!READ_ONCE(dev->removing))
		queue_delayed_work(dev->wq, &dev->cm_event_work, 0);
}

/* Called when the device announces connection events. */
void vrdma_cm_events(struct vrdma_dev *dev)
{
	mod_delayed_work(dev->wq, &dev->cm_event_work, 0);
}

/*
 * Ends the connection of a QP that was moved to ERR or RESET, or destroyed, whatever the device
 * reports.
 */
void vrdma_cm_qp_ended(struct vrdma_dev *dev, struct vrdma_qp *qp)
{
	const struct iw_cm_event news = { .status = -ECONNRESET };

	if (!dev->iwarp)
		return;
	mutex_lock(&dev->cm_lock);
	if (qp->end)
		vrdma_end_step(dev, qp->end, VRDMA_CM_QP_ENDED, &news);
	mutex_unlock(&dev->cm_lock);
}

/* Ends all connections, because the device is broken. */
void vrdma_cm_fail(struct vrdma_dev *dev)
{
	mutex_lock(&dev->cm_lock);
	vrdma_ends_fail(dev);
	mutex_unlock(&dev->cm_lock);
}

/* Ends all connections and allows no new ones, so that nobody waits when the driver is removed. */
void vrdma_cm_stop(struct vrdma_dev *dev)
{
	mutex_lock(&dev->cm_lock);
	dev->cm_stopped = true;
	vrdma_ends_fail(dev);
	mutex_unlock(&dev->cm_lock);
}

void vrdma_cm_init(struct vrdma_dev *dev)
{
	vrdma_ends_init(dev);
	xa_init(&dev->cm_listeners);
	INIT_DELAYED_WORK(&dev->cm_event_work, event_work);
}

/* Waits until the last events have been handled. Called after the device has been reset. */
void vrdma_cm_cancel(struct vrdma_dev *dev)
{
	cancel_delayed_work_sync(&dev->cm_event_work);
	vrdma_ends_cancel(dev);
}

/* Called after the reset of the device, when it has no users and so no listeners any more. */
void vrdma_cm_cleanup(struct vrdma_dev *dev)
{
	vrdma_ends_cleanup(dev);
	xa_destroy(&dev->cm_listeners);
}
