// SPDX-License-Identifier: GPL-2.0
/* iWARP listeners, and the connection requests of peers. */
#include <linux/net.h>
#include <linux/slab.h>
#include <rdma/iw_cm.h>

#include "broken.h"
#include "cmaddr.h"
#include "cmcmds.h"
#include "cmend.h"
#include "cmlisten.h"
#include "cmroute.h"

/**
 * struct vrdma_listener - an iWARP listener (cm_lock of the device protects all of it)
 * @number: the device's number for the listener
 * @cm_id: iw_cm's identifier, with a reference
 * @port: socket that reserves the TCP port
 */
struct vrdma_listener {
	u32 number;
	struct iw_cm_id *cm_id;
	struct socket *port;
};

static int listen_locked(struct vrdma_dev *dev, struct vrdma_listener *listener,
			 const struct vrdma_cm_listen_req *req)
{
	int err = vrdma_cmd_cm_listen(dev, req, &listener->number);

	if (err)
		return err == -EBUSY ? -EADDRINUSE : err;
	err = xa_insert(&dev->cm_listeners, listener->number, listener, GFP_KERNEL);
	if (err == -EBUSY) {
		vrdma_set_broken(dev, "it has two listeners of the same number");
		return -EIO;
	}
	if (err)
		vrdma_cmd_cm_close_listener(dev, listener->number);
	return err;
}

int vrdma_iw_create_listen(struct iw_cm_id *cm_id, int backlog)
{
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_cm_listen_req req = { .backlog = cpu_to_le32(max(backlog, 1)) };
	struct vrdma_listener *listener = kzalloc(sizeof(*listener), GFP_KERNEL);
	struct vrdma_cm_scope scope = vrdma_scope_of(cm_id);
	int err;

	if (!listener)
		return -ENOMEM;
	listener->cm_id = cm_id;
	err = vrdma_has_address(dev, &scope, &cm_id->m_local_addr);
	if (err)
		goto err_free;
	err = vrdma_reserve_port(scope.net, &cm_id->m_local_addr, &listener->port);
	if (err)
		goto err_free;
	vrdma_put_address(&cm_id->m_local_addr, req.addr, &req.port);
	req.traffic_class = vrdma_traffic_class(dev, cm_id);
	mutex_lock(&dev->cm_lock);
	err = listen_locked(dev, listener, &req);
	if (!err) {
		cm_id->add_ref(cm_id);
		cm_id->provider_data = listener;
	}
	mutex_unlock(&dev->cm_lock);
	if (err)
		goto err_port;
	return 0;

err_port:
	vrdma_release_port(listener->port);
err_free:
	kfree(listener);
	return err;
}

/* Connections that peers have requested stay until iw_cm answers them, or they time out. */
int vrdma_iw_destroy_listen(struct iw_cm_id *cm_id)
{
	struct vrdma_dev *dev = to_vdev(cm_id->device);
	struct vrdma_listener *listener;

	mutex_lock(&dev->cm_lock);
	listener = cm_id->provider_data;
	cm_id->provider_data = NULL;
	if (!listener) {
		mutex_unlock(&dev->cm_lock);
		return 0;
	}
	xa_erase(&dev->cm_listeners, listener->number);
	vrdma_cmd_cm_close_listener(dev, listener->number);
	mutex_unlock(&dev->cm_lock);
	vrdma_release_port(listener->port);
	kfree(listener);
	cm_id->rem_ref(cm_id);
	return 0;
}

/* Whether @event can belong to the listener @cm_id. */
static bool is_of_listener(const struct iw_cm_id *cm_id, const struct iw_cm_event *event)
{
	int family = event->local_addr.ss_family;

	if (family != event->remote_addr.ss_family ||
	    vrdma_port(&event->local_addr) != vrdma_port(&cm_id->m_local_addr))
		return false;
	/*
	 * A listener for all IPv6 addresses gets IPv4 connections too, unless its program refuses
	 * them.
	 */
	return family == cm_id->m_local_addr.ss_family ||
	       (family == AF_INET && !cm_id->afonly);
}

/**
 * vrdma_cm_requested() - handle a peer's request for a connection
 * @dev: the device, whose cm_lock is held
 * @event: event for iw_cm
 * @number: the device's number for the connection
 * @of: the device's number for the listener
 *
 * The connection ends if iw_cm does not take it.
 */
void vrdma_cm_requested(struct vrdma_dev *dev, struct iw_cm_event *event, u32 number, u32 of)
{
	struct vrdma_listener *listener = xa_load(&dev->cm_listeners, of);
	struct vrdma_end *end = vrdma_end_alloc(VRDMA_CM_REQUESTED);
	u32 request;

	if (!end) {
		vrdma_cmd_cm_release(dev, number);
		return;
	}
	end->number = number;
	if (vrdma_end_insert(dev, end)) {
		vrdma_end_free(dev, end);
		return;
	}
	/* The listener may be gone already. */
	if (!listener || dev->cm_stopped || !is_of_listener(listener->cm_id, event) ||
	    xa_alloc_cyclic(&dev->cm_requests, &request, end, xa_limit_32b,
			    &dev->cm_next_request, GFP_KERNEL) < 0)
		goto refuse;
	end->request = request;
	event->provider_data = (void *)(unsigned long)request;
	if (!listener->cm_id->event_handler(listener->cm_id, event))
		return;
refuse:
	vrdma_end_step(dev, end, VRDMA_CM_FAILED, NULL);
}
