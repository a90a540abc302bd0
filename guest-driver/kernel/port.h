/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_PORT_H
#define VRDMA_PORT_H

#include "vrdma.h"

void vrdma_port_init(struct vrdma_dev *dev);
enum ib_port_state vrdma_port_state(struct vrdma_dev *dev, enum ib_mtu *mtu);
void vrdma_port_set_speed(struct ib_port_attr *attr, u32 mbps);
u8 vrdma_phys_state(struct vrdma_dev *dev, enum ib_port_state state);
void vrdma_port_update(struct vrdma_dev *dev);
void vrdma_link_event(struct vrdma_dev *dev, enum ib_port_state link);
int vrdma_link_query(struct vrdma_dev *dev);

#endif /* VRDMA_PORT_H */
