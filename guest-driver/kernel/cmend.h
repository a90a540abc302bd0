/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMEND_H
#define VRDMA_CMEND_H

#include "cmstate.h"
#include "vrdma.h"

struct iw_cm_event;
struct iw_cm_id;
struct socket;
struct vrdma_qp;

/**
 * struct vrdma_end - this end of a connection (cm_lock of the device protects all of it)
 * @number: the device's number for the connection
 * @state: state of the connection
 * @expires: jiffies when the connection is given up, if its state is limited in time
 * @request: number by which iw_cm accepts or rejects an incoming connection; else 0
 * @cm_id: iw_cm's identifier, with a reference, as long as iw_cm is told of events; else NULL
 * @qp: the connected QP, as long as iw_cm has it connected; else NULL
 * @port: socket that reserves the TCP port, or NULL
 */
struct vrdma_end {
	u32 number;
	enum vrdma_cm_state state;
	unsigned long expires;
	u32 request;
	struct iw_cm_id *cm_id;
	struct vrdma_qp *qp;
	struct socket *port;
};

struct vrdma_end *vrdma_end_alloc(enum vrdma_cm_state state);
int vrdma_end_insert(struct vrdma_dev *dev, struct vrdma_end *end);
void vrdma_end_use(struct vrdma_dev *dev, struct vrdma_end *end, enum vrdma_cm_state state,
		   struct iw_cm_id *cm_id, struct vrdma_qp *qp);
void vrdma_end_step(struct vrdma_dev *dev, struct vrdma_end *end, enum vrdma_cm_what what,
		    const struct iw_cm_event *news);
void vrdma_end_free(struct vrdma_dev *dev, struct vrdma_end *end);
void vrdma_ends_fail(struct vrdma_dev *dev);
void vrdma_ends_init(struct vrdma_dev *dev);
void vrdma_ends_cancel(struct vrdma_dev *dev);
void vrdma_ends_cleanup(struct vrdma_dev *dev);

#endif /* VRDMA_CMEND_H */
