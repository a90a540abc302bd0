// SPDX-License-Identifier: GPL-2.0
/*
 * Receives of a kernel SRQ, which complete in any order.
 *
 * Each receive has a slot. The device names the receive by the index of the slot.
 */
#include <linux/mm.h>

#include "slots.h"

/* Values of &vrdma_slot.next: for a taken slot, and for the last free slot. */
#define SLOT_TAKEN U32_MAX
#define SLOT_LAST (U32_MAX - 1)

static struct vrdma_slot *slots_alloc(u32 num)
{
	return kvcalloc(num, sizeof(struct vrdma_slot), GFP_KERNEL);
}

/* Makes the slots from @first on free. @slots is locked, or not in use yet. */
static void slots_free_from(struct vrdma_slots *slots, u32 first)
{
	u32 i;

	for (i = slots->num; i > first; i--) {
		slots->slot[i - 1].next = slots->free;
		slots->free = i - 1;
	}
}

int vrdma_slots_init(struct vrdma_slots *slots, u32 max)
{
	spin_lock_init(&slots->lock);
	slots->slot = slots_alloc(max);
	if (!slots->slot)
		return -ENOMEM;
	slots->num = max;
	slots->max = max;
	slots->taken = 0;
	slots->free = SLOT_LAST;
	slots_free_from(slots, 0);
	return 0;
}

void vrdma_slots_cleanup(struct vrdma_slots *slots)
{
	kvfree(slots->slot);
	slots->slot = NULL;
}

/* Makes room for @num slots. The limit of taken slots does not change. Sleeps. */
int vrdma_slots_grow(struct vrdma_slots *slots, u32 num)
{
	struct vrdma_slot *slot = slots_alloc(num);
	unsigned long flags;
	u32 before;

	if (!slot)
		return -ENOMEM;
	spin_lock_irqsave(&slots->lock, flags);
	before = slots->num;
	if (num > before) {
		memcpy(slot, slots->slot, before * sizeof(*slot));
		swap(slot, slots->slot);
		slots->num = num;
		slots_free_from(slots, before);
	}
	spin_unlock_irqrestore(&slots->lock, flags);
	kvfree(slot);
	return 0;
}

/*
 * Sets how many slots may be taken. If more are taken already, none is free until enough complete.
 */
void vrdma_slots_limit(struct vrdma_slots *slots, u32 max)
{
	unsigned long flags;

	spin_lock_irqsave(&slots->lock, flags);
	slots->max = max;
	spin_unlock_irqrestore(&slots->lock, flags);
}

/* Takes a slot, and stores its index in @index. Returns false if the limit is reached. */
bool vrdma_slots_take(struct vrdma_slots *slots, u64 wr_id, u32 *index)
{
	unsigned long flags;
	bool room;

	spin_lock_irqsave(&slots->lock, flags);
	room = slots->taken < slots->max && slots->free < slots->num;
	if (room) {
		struct vrdma_slot *slot = &slots->slot[slots->free];

		*index = slots->free;
		slots->free = slot->next;
		slot->next = SLOT_TAKEN;
		slot->wr_id = wr_id;
		slots->taken++;
	}
	spin_unlock_irqrestore(&slots->lock, flags);
	return room;
}

/**
 * vrdma_slots_complete() - take the completion of a receive
 * @slots: the slots
 * @index: index of the slot, as reported by the device
 * @wr_id: becomes the wr_id of the receive
 *
 * Return: whether there is such a receive
 */
bool vrdma_slots_complete(struct vrdma_slots *slots, u32 index, u64 *wr_id)
{
	unsigned long flags;
	bool found;

	spin_lock_irqsave(&slots->lock, flags);
	found = index < slots->num && slots->slot[index].next == SLOT_TAKEN;
	if (found) {
		struct vrdma_slot *slot = &slots->slot[index];

		*wr_id = slot->wr_id;
		slot->next = slots->free;
		slots->free = index;
		slots->taken--;
	}
	spin_unlock_irqrestore(&slots->lock, flags);
	return found;
}
